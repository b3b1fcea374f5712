package instance

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/lab/scheme"
)

func TestA70_EachInstanceHasMetricsThatAlertsAreMadeOf(t *testing.T) {
	t.Parallel()
	scheme := scheme.New(t)
	node := func(name, end string, annotations ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "windows"},
			Annotations: map[string]string{contract.CertificateEndAnnotation: end}}}
		for _, a := range annotations {
			n.Annotations[a] = "x"
		}
		return n
	}
	says := func(reason string) metav1.Condition {
		return metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionTrue, Reason: reason}
	}
	instance := func(name string, edit func(s *v1alpha1.WindowsInstanceStatus)) *v1alpha1.WindowsInstance {
		i := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
		edit(&i.Status)
		return i
	}
	well := instance("10.0.0.1", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Phase, s.NodeName, s.Revision, s.DesiredRevision = v1alpha1.PhaseReady, "win-a", "1-a", "1-a"
		s.NodeUID = "a"
		s.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	})
	waiting := instance("10.0.0.2", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Phase, s.Conditions = v1alpha1.PhaseConnecting, []metav1.Condition{says("Unreachable")}
	})
	unwell := instance("10.0.0.3", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Phase, s.NodeName, s.Revision, s.DesiredRevision = v1alpha1.PhaseReady, "win-c", "1-a", "1-b"
		s.Conditions = []metav1.Condition{says("DaemonUnresponsive")}
		s.NodeUID = "c"
	})
	// The preflight check has determined this host's node name. The Node with this name belongs to an earlier host.
	named := instance("10.0.0.5", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Phase, s.NodeName = v1alpha1.PhaseBootstrapping, "win-e"
		s.Conditions = []metav1.Condition{says("FeatureMissing")}
	})
	// This host was a node before, and is joining again.
	again := instance("10.0.0.6", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Phase, s.NodeName, s.NodeUID, s.HeldRevision = v1alpha1.PhaseConnecting, "win-f", "f", "1-a"
		s.Conditions = []metav1.Condition{says("DaemonUnresponsive")}
	})
	checked := instance("10.0.0.7", func(s *v1alpha1.WindowsInstanceStatus) {
		s.Phase, s.Conditions = v1alpha1.PhasePreflight, []metav1.Condition{says("BuildUnsupported")}
	})
	checked.Spec.PreflightOnly = true
	foreign := instance("10.0.0.4", func(*v1alpha1.WindowsInstanceStatus) {})
	foreign.Namespace = "elsewhere"
	api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(well, waiting, unwell, foreign,
		named, again, checked, node("win-a", "2027-01-29T08:00:00Z"),
		node("win-c", "soon", contract.RebootPendingAnnotation),
		node("win-e", "2027-01-29T08:00:00Z", contract.RebootPendingAnnotation)).Build()
	want := `
# HELP wmco_instance_daemon_certificate_expiry_timestamp_seconds When the daemon's client certificate expires, as it reports it.
# TYPE wmco_instance_daemon_certificate_expiry_timestamp_seconds gauge
wmco_instance_daemon_certificate_expiry_timestamp_seconds{node="win-a",windows_instance="10.0.0.1"} 1.8012096e+09
# HELP wmco_instance_daemon_unresponsive 1 while a daemon does not respond, was stopped, or has an expired certificate, else 0.
# TYPE wmco_instance_daemon_unresponsive gauge
wmco_instance_daemon_unresponsive{node="",windows_instance="10.0.0.2"} 0
wmco_instance_daemon_unresponsive{node="",windows_instance="10.0.0.5"} 0
wmco_instance_daemon_unresponsive{node="",windows_instance="10.0.0.7"} 0
wmco_instance_daemon_unresponsive{node="win-a",windows_instance="10.0.0.1"} 0
wmco_instance_daemon_unresponsive{node="win-c",windows_instance="10.0.0.3"} 1
wmco_instance_daemon_unresponsive{node="win-f",windows_instance="10.0.0.6"} 1
# HELP wmco_instance_info 1, with the phase of an instance, and why it waits or fails.
# TYPE wmco_instance_info gauge
wmco_instance_info{code="",node="win-a",phase="Ready",reason="",windows_instance="10.0.0.1"} 1
wmco_instance_info{code="W201",node="",phase="Connecting",reason="Unreachable",windows_instance="10.0.0.2"} 1
wmco_instance_info{code="W301",node="",phase="Preflight",reason="BuildUnsupported",windows_instance="10.0.0.7"} 1
wmco_instance_info{code="W404",node="",phase="Bootstrapping",reason="FeatureMissing",windows_instance="10.0.0.5"} 1
wmco_instance_info{code="W713",node="win-c",phase="Ready",reason="DaemonUnresponsive",windows_instance="10.0.0.3"} 1
wmco_instance_info{code="W713",node="win-f",phase="Connecting",reason="DaemonUnresponsive",windows_instance="10.0.0.6"} 1
# HELP wmco_instance_ready 1 when an instance is a node at its desired revision and Ready, else 0.
# TYPE wmco_instance_ready gauge
wmco_instance_ready{node="",windows_instance="10.0.0.2"} 0
wmco_instance_ready{node="",windows_instance="10.0.0.5"} 0
wmco_instance_ready{node="win-a",windows_instance="10.0.0.1"} 1
wmco_instance_ready{node="win-c",windows_instance="10.0.0.3"} 0
wmco_instance_ready{node="win-f",windows_instance="10.0.0.6"} 0
# HELP wmco_instance_reboot_requested 1 while a reboot of the host is requested or pending, else 0.
# TYPE wmco_instance_reboot_requested gauge
wmco_instance_reboot_requested{node="",windows_instance="10.0.0.2"} 0
wmco_instance_reboot_requested{node="",windows_instance="10.0.0.5"} 0
wmco_instance_reboot_requested{node="",windows_instance="10.0.0.7"} 0
wmco_instance_reboot_requested{node="win-a",windows_instance="10.0.0.1"} 0
wmco_instance_reboot_requested{node="win-c",windows_instance="10.0.0.3"} 1
wmco_instance_reboot_requested{node="win-f",windows_instance="10.0.0.6"} 0
# HELP wmco_instance_updated 1 when a host has the revision that it should have, else 0.
# TYPE wmco_instance_updated gauge
wmco_instance_updated{node="",windows_instance="10.0.0.2"} 0
wmco_instance_updated{node="",windows_instance="10.0.0.5"} 0
wmco_instance_updated{node="win-a",windows_instance="10.0.0.1"} 1
wmco_instance_updated{node="win-c",windows_instance="10.0.0.3"} 0
wmco_instance_updated{node="win-f",windows_instance="10.0.0.6"} 0
`
	if got := scrape(t, read(api)); got != strings.TrimPrefix(want, "\n") {
		t.Errorf("metrics:\n%s", got)
	}
	// If the cache can't be read, all other metrics must still be returned.
	broken := interceptor.NewClient(api, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList,
		...client.ListOption) error {
		return errors.New("the cache is not there yet")
	}})
	if got := scrape(t, read(broken)); got != "" {
		t.Errorf("metrics without a cache: %s", got)
	}
}

func TestA70_ANodeThatWaitsForItsTurnIsNotUpdated(t *testing.T) {
	t.Parallel()
	scheme := scheme.New(t)
	waits := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "10.0.0.1"},
		Status: v1alpha1.WindowsInstanceStatus{NodeName: "win-a", NodeUID: "a", Revision: "1-a", DesiredRevision: "1-a",
			Activity: &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "1-b", Step: v1alpha1.StepWaiting}}}
	got := scrape(t, read(fake.NewClientBuilder().WithScheme(scheme).WithObjects(waits).Build()))
	if want := `wmco_instance_updated{node="win-a",windows_instance="10.0.0.1"} 0`; !strings.Contains(got, want) {
		t.Errorf("metrics lack %s:\n%s", want, got)
	}
}

// read returns the parts from which the metrics are computed.
func read(cached client.Client) *journey.Parts {
	return &journey.Parts{Options: journey.Options{Client: cached, Namespace: "ns"}}
}

// scrape returns the metrics as text. It also checks their format.
func scrape(t *testing.T, parts *journey.Parts) string {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newInstances(parts))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, family := range families {
		if _, err = expfmt.MetricFamilyToText(&text, family); err != nil {
			t.Fatal(err)
		}
	}
	return text.String()
}
