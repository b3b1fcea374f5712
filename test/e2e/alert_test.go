package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/lab/prometheus"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
)

const (
	// longestHold is how long the longest "for" of an alert takes in this test. Prometheus scrapes every second, and
	// the daemon writes its pull counters every 15 seconds.
	longestHold = 24 * time.Second
	// shortLife is a certificate lifetime below the alerts' limit of two hours. laterOn is an upper limit for the time
	// until the renewal: kubelet renews after at most nine tenths of the lifetime, and the lifetime begins five
	// minutes before the certificate is issued.
	shortLife, laterOn = 110 * time.Minute, 100 * time.Minute
	yearLife           = 365 * 24 * time.Hour
)

// kubelets are rights and a ServiceMonitor for kubelets' metrics. OpenShift has them by default.
const kubelets = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: prometheus-k8s}
rules:
- {apiGroups: [""], resources: [nodes], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
`

const kubeletMonitor = `
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: kubelet, namespace: openshift-monitoring}
spec:
  serviceDiscoveryRole: EndpointSlice
  jobLabel: k8s-app
  namespaceSelector: {matchNames: [kube-system]}
  selector:
    matchLabels: {k8s-app: kubelet}
  endpoints:
  - port: https-metrics
    scheme: https
    bearerTokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
    tlsConfig: {caFile: /etc/prometheus/configmaps/kubelet-serving-ca-bundle/ca-bundle.crt}
`

// expected is an alert that must fire with these labels and with these words in its annotations.
type expected struct {
	alert  string
	labels map[string]string
	says   []string
}

func (e expected) is(a prometheus.Alert) bool {
	for name, value := range e.labels {
		if a.Labels[name] != value {
			return false
		}
	}
	for _, word := range e.says {
		if !strings.Contains(wording(a), word) {
			return false
		}
	}
	return a.State == "firing" && a.Labels["alertname"] == e.alert
}

// wording returns the text of an alert: its summary and description. The text may change with every evaluation.
func wording(a prometheus.Alert) string {
	return a.Annotations["summary"] + "\n" + a.Annotations["description"]
}

// badLab is a lab with faults that Prometheus monitors.
type badLab struct {
	*stage
	prometheus *prometheus.Prometheus
	factors    map[string]float64
	runbook    string
	fired      map[string]bool
	// near is the only host that Prometheus reaches. Each other host has one fault.
	near, dead, silent, pending, spare, never *fleet.Host
}

// The test causes the condition that each alert of config/monitoring describes in its runbook. The alert must fire.
// After the repair, it must stop. A real Prometheus evaluates the rules. To save time, all durations in
// a rule are divided by a number.
func TestA70_ALabThatMisbehavesHasEachAlertFireAndFallSilent(t *testing.T) {
	t.Parallel()
	l := newBadLab(t)
	l.badHosts(t)
	l.badFleet(t)
	l.without(t)
	for alert := range l.factors {
		if !l.fired[alert] {
			t.Errorf("%s did not fire", alert)
		}
	}
}

func newBadLab(t *testing.T) *badLab {
	t.Helper()
	lease, err := fleet.TakeOwn(t.Context())
	must(t, err)
	t.Cleanup(func() { must(t, lease.Release()) })
	o := options(6)
	edit := o.Hosts.Edit
	o.Hosts.Edit = func(i int, h *sim.Options) {
		edit(i, h)
		if i == 0 {
			h.Address = lease.Address
		}
	}
	two := intstr.FromInt32(2)
	o.Settings.Rollout.MaxUnavailable = &two
	o.Settings.Rollout.VerifyTimeout = &metav1.Duration{Duration: 15 * time.Second}
	o.Metrics = true
	o.Arguments = []string{"--metrics-bind-address", lease.Address.String() + ":" + operatorMetricsPort,
		"--daemon-timeout", "15m"}
	s := alone(t, o)
	hosts := s.hosts(t, 6)
	l := &badLab{stage: s, fired: map[string]bool{}, near: hosts[0], dead: hosts[1], silent: hosts[2],
		pending: hosts[3], spare: hosts[4], never: hosts[5]}
	s.join(t, l.dead, l.silent, l.pending, l.spare)
	must(t, s.Cluster.SetSigningDuration(t.Context(), shortLife))
	s.join(t, l.near)
	must(t, s.Cluster.SetSigningDuration(t.Context(), yearLife))
	l.watch(t)
	return l
}

// watch starts Prometheus with the rules.
func (l *badLab) watch(t *testing.T) {
	t.Helper()
	manifests, _ := l.monitored(t)
	manifests, factors, err := prometheus.ScaleAlertTimes(append(manifests, kubeletMonitor...), longestHold)
	must(t, err)
	l.factors = factors
	l.apply(t, ofOpenShift)
	l.apply(t, kubelets)
	l.apply(t, fmt.Sprintf(endpoints, contract.OperatorNamespace, l.near.Address().Addr(), operatorMetricsPort))
	state := httptest.NewServer(http.HandlerFunc(l.kubeState))
	t.Cleanup(state.Close)
	l.prometheus, err = prometheus.Start(t.Context(), prometheus.Options{Cluster: l.Cluster, Manifests: manifests,
		Namespace: "openshift-monitoring", Account: "prometheus-k8s", Dir: t.TempDir(), Progress: os.Stderr,
		KubeState: strings.TrimPrefix(state.URL, "http://"), Interval: time.Second,
		Nodes: corev1.LabelHostname + "=" + l.near.Name})
	must(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the end of the log of Prometheus:", l.prometheus.Tail(4000))
		}
		must(t, l.prometheus.Stop())
	})
	root, err := cluster.ModuleRoot()
	must(t, err)
	page, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	must(t, err)
	l.runbook = string(page)
	l.measured(t, l.prometheus, `up{job="windows-exporter",instance="`+l.near.Name+`"} == 1`)
	l.measured(t, l.prometheus, `kubelet_certificate_manager_client_ttl_seconds{node="`+l.near.Name+`"}`)
}

// badHosts makes alerts about hosts fire, and repairs the hosts, except the host that waits for a reboot.
func (l *badLab) badHosts(t *testing.T) {
	t.Helper()
	mirrors := l.mirrors(t)
	must(t, l.silent.Machine.DisableService(contract.ServiceDaemon))
	must(t, l.silent.Machine.CrashService(contract.ServiceDaemon))
	must(t, mirrors.create(t.Context()))
	l.never.Break(fleet.FaultAuth)
	l.add(t, l.never)
	l.dead.Machine.PowerCut()
	l.pending.Machine.SetRebootSigns([]string{winos.SignUpdate})
	must(t, l.pending.Machine.CrashService(contract.ServiceDaemon))
	facts, err := l.near.Machine.Host().System.Facts(t.Context())
	must(t, err)
	l.near.Machine.SetDiskFree(facts.DiskTotal / 20)
	l.near.Machine.FailService(contract.ServiceKubeProxy, true)
	must(t, l.near.Machine.CrashService(contract.ServiceKubeProxy))
	calm := l.crashLoop(t)
	junk := map[string]string{"no_address": "username=a"}
	l.addRaw(t, junk)

	near, of := l.near.Name, func(h *fleet.Host) string { return h.Address().Addr().String() }
	l.fire(t, []expected{
		{"WindowsHostNotJoining", map[string]string{"windows_instance": of(l.never)},
			[]string{of(l.never), string(contract.ReasonKeyRefused), contract.ReasonKeyRefused.Code()}},
		{"WindowsNodeNotServing", map[string]string{"node": l.dead.Name},
			[]string{of(l.dead), string(contract.ReasonNodeNotReady), contract.ReasonNodeNotReady.Code()}},
		{"WindowsDaemonUnresponsive", map[string]string{"node": l.silent.Name}, []string{"does not respond"}},
		{"WindowsRebootPending", map[string]string{"node": l.pending.Name}, []string{"reboot"}},
		{"WindowsDaemonCertificateExpiring", map[string]string{"node": near}, []string{"two hours"}},
		{"WindowsKubeletCertificateExpiring", map[string]string{"node": near}, []string{"two hours"}},
		{"WindowsDiskFull", map[string]string{"instance": near}, []string{near, "5% is free"}},
		{"WindowsServiceNotRunning", map[string]string{"instance": near, "name": contract.ServiceKubeProxy},
			[]string{near, contract.ServiceKubeProxy}},
		{"WindowsServiceRestarting", map[string]string{"instance": near, "name": "hns"}, []string{near, "hns"}},
		{"WindowsImagePullsFailing", map[string]string{"instance": near}, []string{near}},
		{"WindowsSettingRejected", map[string]string{"reason": string(contract.ReasonMirrorRejected)}, nil},
		{"WindowsMachineConfigDegraded", map[string]string{"reason": string(contract.ReasonEntryMalformed)}, nil},
	})

	calm()
	l.dropRaw(t, junk)
	must(t, mirrors.remove(t.Context()))
	l.near.Machine.FailService(contract.ServiceKubeProxy, false)
	l.near.Machine.SetDiskFree(facts.DiskFree)
	l.dead.Machine.PowerOn()
	l.never.Mend() // repair it soon, because the operator waits longer after each failure
	l.enable(t, l.silent)
	l.later(t)
}

// badFleet makes the alerts about the whole fleet fire, and repairs everything.
func (l *badLab) badFleet(t *testing.T) {
	t.Helper()
	bad, good := filepath.Join(l.Dir, "payload-bad"), filepath.Join(l.Dir, "payload-good")
	must(t, scene.ChangePayload(bad, l.PayloadDir(), scene.Change{Versions: map[string]string{kubeletExe: "v1.36.5"},
		Failing: []string{kubeletExe}}))
	must(t, scene.ChangePayload(good, l.PayloadDir(), scene.Change{Versions: map[string]string{kubeletExe: "v1.36.7"}}))
	// The pod for Linux must exist before the upgrade, because the operator looks for such pods soon after it starts.
	// The upgrade restarts the operator.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "linux"},
		Spec: corev1.PodSpec{NodeName: l.near.Name, OS: &corev1.PodOS{Name: corev1.Linux},
			Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers:  []corev1.Container{{Name: "linux", Image: "registry.example/linux"}}}}
	l.put(t, pod)
	must(t, l.Upgrade(t.Context(), "", bad))
	l.await(t, "the rollout to be halted", func(ctx context.Context) (bool, string, error) {
		_, status, err := l.rollout(ctx)
		return status.Phase == v1alpha1.RolloutHalted, fmt.Sprintf("%s: %s", status.Phase, status.Message), err
	})
	overlay := func(value string) {
		l.shell(t.Context(), t, "kubectl patch networks.operator.openshift.io cluster --type merge -p "+
			`'{"spec":{"defaultNetwork":{"ovnKubernetesConfig":{"hybridOverlayConfig":`+value+"}}}}'")
	}
	before := l.shell(t.Context(), t, "kubectl get networks.operator.openshift.io cluster "+
		"-o jsonpath='{.spec.defaultNetwork.ovnKubernetesConfig.hybridOverlayConfig}'")
	overlay("null")

	l.fire(t, []expected{
		{"WindowsRolloutHalted", nil, []string{"spec.rollout.failureThreshold"}},
		{"WindowsNodeOutdated", nil, []string{"is not at its desired revision"}},
		{"WindowsPodsMisplaced", map[string]string{"reason": string(contract.ReasonLinuxPodPlaced)}, nil},
		{"WindowsPrerequisiteMissing", map[string]string{"reason": string(contract.ReasonNetworkUnsupported)}, nil},
	})

	overlay(string(before))
	must(t, client.IgnoreNotFound(l.Client.Delete(t.Context(), pod)))
	l.setVerifyTimeout(t, time.Minute) // healthy nodes may be slow
	must(t, l.Upgrade(t.Context(), "", good))
	l.shell(t.Context(), t, "kubectl annotate node "+l.pending.Name+" "+contract.RebootRequestedAnnotation+
		"=$(date +%s) --overwrite")
	l.quiet(t)
}

// without makes the alerts about missing data fire.
func (l *badLab) without(t *testing.T) {
	t.Helper()
	l.near.Machine.FailService(contract.ServiceExporter, true)
	must(t, l.near.Machine.CrashService(contract.ServiceExporter))
	must(t, l.Operator.Stop())
	l.fire(t, []expected{
		{"WindowsExporterDown", map[string]string{"instance": l.near.Name}, []string{l.near.Name, "9182"}},
		{"WindowsOperatorDown", nil, []string{"Operator does not run"}},
	})
	must(t, l.Operator.Start(t.Context()))
	l.near.Machine.FailService(contract.ServiceExporter, false)
	l.quiet(t)
}

// fire waits until the given alerts fire. Each must name the fault and link to its runbook.
func (l *badLab) fire(t *testing.T, all []expected) {
	t.Helper()
	l.await(t, "the expected alerts to fire", func(ctx context.Context) (bool, string, error) {
		now, err := l.prometheus.Alerts(ctx)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // Prometheus is busy; ask again
		}
		var missing []string
		for _, e := range all {
			if l.fired[e.alert] {
				continue
			}
			missing = append(missing, e.alert)
			for _, a := range now {
				if e.is(a) && !l.fired[e.alert] {
					l.fired[e.alert] = true
					l.reads(t, e, a)
				}
			}
		}
		return len(missing) == 0, fmt.Sprintf("these alerts do not fire: %v; firing alerts: %+v", missing, now), nil
	})
}

// reads checks that an alert's text names the fault, and that it links to its runbook.
func (l *badLab) reads(t *testing.T, e expected, a prometheus.Alert) {
	t.Helper()
	for _, word := range []string{a.Labels["node"], a.Labels["reason"]} {
		if !strings.Contains(wording(a), word) {
			t.Errorf("%s does not say %q: %s", e.alert, word, wording(a))
		}
	}
	_, anchor, _ := strings.Cut(a.Annotations["runbook_url"], "docs/alerts.md#")
	if anchor != strings.ToLower(e.alert) || !strings.Contains(l.runbook, "\n## "+e.alert+"\n") {
		t.Errorf("alert %s has the runbook %s", e.alert, a.Annotations["runbook_url"])
	}
	t.Logf("%s fires: %s", e.alert, wording(a))
}

// quiet waits until no alert fires.
func (l *badLab) quiet(t *testing.T) {
	t.Helper()
	l.await(t, "no alert to fire", func(ctx context.Context) (bool, string, error) {
		now, err := l.prometheus.Alerts(ctx)
		if err != nil {
			return false, err.Error(), nil //nolint:nilerr // Prometheus is busy; ask again
		}
		var firing []string
		for _, a := range now {
			if a.State == "firing" {
				firing = append(firing, fmt.Sprint(a.Labels))
			}
		}
		return len(firing) == 0, strings.Join(firing, "\n"), nil
	})
}

// mirrorSet is a set of mirrors with one invalid entry.
type mirrorSet struct {
	create, remove func(ctx context.Context) error
}

func (l *badLab) mirrors(t *testing.T) mirrorSet {
	t.Helper()
	admin, err := openshift.Client(l.Cluster.Admin())
	must(t, err)
	set := &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "bad"},
		Spec: configv1.ImageDigestMirrorSetSpec{ImageDigestMirrors: []configv1.ImageDigestMirrors{
			{Source: gone + "/team", Mirrors: []configv1.ImageMirror{"127.0.0.1:2/team"},
				MirrorSourcePolicy: configv1.NeverContactSource},
			{Source: "registry.invalid/self", Mirrors: []configv1.ImageMirror{"127.0.0.1:9184/self"}},
		}}}
	return mirrorSet{
		create: func(ctx context.Context) error { return admin.Create(ctx, set) },
		remove: func(ctx context.Context) error { return admin.Delete(ctx, set) },
	}
}

// gone is a registry that is never asked. Nothing listens on its mirror.
const gone = "registry.invalid:5000"

// crashLoop starts two faults: it restarts HNS each time Prometheus has seen its new process, and it pulls images that
// no registry has. Both continue until calm is called.
func (l *badLab) crashLoop(t *testing.T) (calm func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	t.Cleanup(func() { cancel(); group.Wait() })
	group.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			seen, err := l.prometheus.Query(ctx, fmt.Sprintf(`windows_service_info{instance=%q,name="hns",process_id="%d"}`,
				l.near.Name, l.near.Machine.HNSProcess()))
			if err == nil && len(seen) > 0 {
				l.near.Machine.RestartHNS()
			}
			return false, nil
		})
	})
	group.Go(func() {
		_ = wait.PollUntilContextCancel(ctx, 500*time.Millisecond, true, func(ctx context.Context) (bool, error) {
			if err := pull(ctx, l.near, gone, "team/app", "sha256:"+strings.Repeat("0", 64)); err == nil {
				t.Error("a pull succeeded although no registry has the image")
			}
			return false, nil
		})
	})
	return func() { cancel(); group.Wait() }
}

// enable lets a disabled service start again, and starts it, as an administrator does in the Services console.
func (l *badLab) enable(t *testing.T, h *fleet.Host) {
	t.Helper()
	services := h.Machine.Host().Services
	daemon, err := services.Get(t.Context(), contract.ServiceDaemon)
	must(t, err)
	must(t, services.Apply(t.Context(), daemon.ServiceConfig))
	must(t, services.Start(t.Context(), contract.ServiceDaemon))
}

// later makes the near host renew its certificates. Until they are renewed, the host's clock is ahead.
func (l *badLab) later(t *testing.T) {
	t.Helper()
	l.near.Machine.SetClockOffset(laterOn)
	for _, name := range []string{contract.ServiceKubelet, contract.ServiceDaemon} {
		must(t, l.near.Machine.CrashService(name))
	}
	near := fmt.Sprintf(`{node=%q} > 7200`, l.near.Name)
	l.measured(t, l.prometheus, "kubelet_certificate_manager_client_ttl_seconds"+near)
	l.measured(t, l.prometheus, "kubelet_certificate_manager_server_ttl_seconds"+near)
	// The daemon reports the new expiry time when it next checks its Node, within ten minutes. A change of the Node
	// causes this check at once.
	query := fmt.Sprintf(`wmco_instance_daemon_certificate_expiry_timestamp_seconds{node=%q} - time() > 7200`, l.near.Name)
	l.await(t, query, func(ctx context.Context) (bool, string, error) {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: l.near.Name}}
		seen := merge(`{"metadata":{"annotations":{"example.com/seen":"` + time.Now().String() + `"}}}`)
		result, err := l.prometheus.Query(ctx, query)
		return len(result) > 0, "it has no result", errors.Join(err, l.Client.Patch(ctx, node, seen))
	})
	l.near.Machine.SetClockOffset(0)
}
