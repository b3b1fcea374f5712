package diagnosis_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/diagnosis"
	"github.com/windows-nodes/wmco/internal/lint"
)

var update = flag.Bool("update", false, "write golden files anew")

const (
	older = "0.1.0-aaaaaaaaaa"
	newer = "0.2.0-bbbbbbbbbb"
)

func now() time.Time { return time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC) }

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now().Add(-d)) }

// golden compares a text with the file name in testdata.
func golden(t *testing.T, name string, have string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil { //nolint:gosec // a file of the repository
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), have); diff != "" {
		t.Errorf("the output differs from %s (-want +have); update the file with -update:\n%s", file, diff)
	}
}

// ready returns a host that is Ready, and its Node. n is the number of the host.
func ready(n int) (v1alpha1.WindowsInstance, corev1.Node) {
	name := fmt.Sprintf("win-%03d", n)
	instance := v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("10.0.%d.%d", n/250, n%250), CreationTimestamp: ago(9 * time.Hour)},
		Spec:       v1alpha1.WindowsInstanceSpec{Address: fmt.Sprintf("10.0.%d.%d", n/250, n%250), Username: "Administrator"},
		Status: v1alpha1.WindowsInstanceStatus{Phase: v1alpha1.PhaseReady, NodeName: name, Revision: older, DesiredRevision: older,
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue,
				LastTransitionTime: ago(8 * time.Hour)}, {Type: v1alpha1.ConditionProgressing,
				Status: metav1.ConditionFalse, Reason: string(contract.ReasonNodeReady), Message: "nothing is under way"}}},
	}
	node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name,
		Labels: map[string]string{corev1.LabelOSStable: "windows", corev1.LabelWindowsBuild: "10.0.20348"},
		Annotations: map[string]string{contract.RevisionAnnotation: older, contract.DesiredRevisionAnnotation: older,
			contract.CertificateEndAnnotation: now().Add(9 * 24 * time.Hour).Format(time.RFC3339)}},
		Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: contract.TaintKey, Value: contract.TaintValue,
			Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.36.3", OSImage: "Windows Server 2022 Datacenter"},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(8 * time.Hour)}}},
	}
	return instance, node
}

// waits changes an instance so that its host waits or fails for a reason.
func waits(i *v1alpha1.WindowsInstance, phase v1alpha1.Phase, reason contract.Reason, failures int32, message string) {
	i.Status.Phase, i.Status.Failures = phase, failures
	i.Status.NodeName, i.Status.Revision, i.Status.DesiredRevision = "", "", ""
	i.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse,
		Reason: string(reason), LastTransitionTime: ago(12 * time.Minute)}}
	says(i, reason, message)
}

// says sets the condition that says why a host waits or fails.
func says(i *v1alpha1.WindowsInstance, reason contract.Reason, message string) {
	meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing,
		Status: metav1.ConditionTrue, Reason: string(reason), Message: contract.NewProblem(reason, "%s", message).Explain()})
}

func lease(seen time.Duration) *coordinationv1.Lease {
	return &coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{HolderIdentity: new("wmco-5d8f"),
		LeaseDurationSeconds: new(int32(137)), RenewTime: &metav1.MicroTime{Time: now().Add(-seen)}}}
}

// fleet returns a cluster with the given number of hosts. Eight hosts refuse the key, one is being upgraded, one waits
// for its slot, the Node of one is not Ready, and the other hosts are healthy.
func fleet(hosts int) diagnosis.Snapshot {
	s := diagnosis.Snapshot{Now: now(), Lease: lease(20 * time.Second)}
	for n := range hosts {
		instance, node := ready(n)
		switch {
		case n < 8:
			waits(&instance, v1alpha1.PhaseConnecting, contract.ReasonKeyRefused, 4, instance.Name+" does not accept the key")
			s.Instances = append(s.Instances, instance)
			continue
		case n == 8:
			instance.Status.Phase = v1alpha1.PhaseUpdating
			says(&instance, contract.ReasonDraining, "3 pods are left")
			instance.Status.Slot = &v1alpha1.Slot{Since: new(ago(3 * time.Minute))}
			instance.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: newer,
				Step: v1alpha1.StepDraining, Since: ago(2 * time.Minute)}
		case n == 9:
			instance.Status.Phase = v1alpha1.PhaseUpdating
			says(&instance, contract.ReasonMaintenanceWindowClosed, "no window is open")
			instance.Status.Activity = &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: newer,
				Step: v1alpha1.StepWaiting, Since: ago(time.Hour)}
		case n == 10:
			node.Status.Conditions[0].Status = corev1.ConditionFalse
			node.Status.Conditions[0].Reason, node.Status.Conditions[0].Message = "KubeletNotReady", "no network"
			node.Annotations[contract.ApplyStatusAnnotation] = "ServiceFailed: kube-proxy does not stay up"
			node.Annotations[contract.CertificateEndAnnotation] = now().Add(24 * time.Hour).Format(time.RFC3339)
		}
		s.Instances, s.Nodes = append(s.Instances, instance), append(s.Nodes, node)
	}
	s.Config.Spec.Rollout = v1alpha1.RolloutSpec{MaxUnavailable: new(intstr.FromString("5%")),
		MaintenanceWindows: []v1alpha1.MaintenanceWindow{{Start: "0 22 * * 6", Duration: metav1.Duration{Duration: 4 * time.Hour}}}}
	s.Config.Status = v1alpha1.WindowsMachineConfigStatus{
		Rollout: v1alpha1.RolloutStatus{Revision: newer, Phase: v1alpha1.RolloutProgressing, Total: int32(hosts - 8),
			Updated: int32(min(hosts/2, hosts-10)), Staged: int32(hosts - 9), Unavailable: 2, Message: "one is being upgraded"},
		RejectedEntries: []v1alpha1.RejectedEntry{{Key: "10.0.0.999", Code: "W101", Message: "is neither address nor name"}},
		Conditions: []metav1.Condition{
			{Type: v1alpha1.ConditionAvailable, Status: metav1.ConditionTrue, LastTransitionTime: ago(9 * time.Hour)},
			{Type: v1alpha1.ConditionDegraded, Status: metav1.ConditionTrue, Reason: "HostsFailing",
				Message: "8 hosts fail", LastTransitionTime: ago(11 * time.Minute)},
		},
	}
	return s
}

func TestA75_TheStatusOf500HostsFitsOnAScreen(t *testing.T) {
	t.Parallel()
	for name, hosts := range map[string]int{"status-500": 500, "status-12": 12} {
		status := diagnosis.Summarize(fleet(hosts))
		var out bytes.Buffer
		if err := status.Print(&out, diagnosis.Style{Now: now()}); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.String())
		if lines := strings.Count(out.String(), "\n"); lines > 48 {
			t.Errorf("%d hosts take %d lines", hosts, lines)
		}
		if status.Healthy() {
			t.Error("hosts that fail are shown as healthy")
		}
	}
}

// If the terminal broke long lines, it would break them inside words, and continue them in the first column.
func TestA75_TextIsFoldedWhereATerminalEnds(t *testing.T) {
	t.Parallel()
	s := fleet(500)
	says(&s.Instances[0], contract.ReasonKeyRefused, s.Instances[0].Name+" does not accept the key "+
		strings.Repeat("x", 100)+" FORGED     by a host")
	s.Instances[8].Name = "win-worker-zone-1" // this host drains its node, so its phase has the longest name
	status, d := diagnosis.Summarize(s), diagnosis.OfHost(&s.Instances[0], nil, s, nil)
	var whole, folded bytes.Buffer
	wide, narrow := diagnosis.Style{Now: now()}, diagnosis.Style{Now: now(), Width: 80}
	if err := errors.Join(status.Print(&whole, wide), d.Print(&whole, wide), status.Print(&folded, narrow),
		d.Print(&folded, narrow)); err != nil {
		t.Fatal(err)
	}
	if want, have := strings.Fields(whole.String()), strings.Fields(folded.String()); !slices.Equal(want, have) {
		t.Errorf("words are missing:\n%s", folded.String())
	}
	for line := range strings.Lines(folded.String()) {
		if long := len([]rune(line)) > 81; long && !strings.Contains(line, "xxx") || strings.HasPrefix(line, "FORGED") {
			t.Errorf("the line is %q", line)
		}
	}
}

func TestA75_AFleetWithoutAnythingToDoIsHealthy(t *testing.T) {
	t.Parallel()
	instance, node := ready(20)
	status := diagnosis.Summarize(diagnosis.Snapshot{Now: now(), Lease: lease(time.Second),
		Instances: []v1alpha1.WindowsInstance{instance}, Nodes: []corev1.Node{node}})
	if !status.Healthy() || len(status.Waiting) != 0 {
		t.Errorf("%+v", status)
	}
}

// A user who needs no CSI storage may build the operator without csi-proxy.
func TestA75_AFleetIsHealthyWithoutAProgramThatTheOperatorWasBuiltWithout(t *testing.T) {
	t.Parallel()
	instance, node := ready(20)
	for kind, want := range map[string]bool{v1alpha1.ConditionPayloadComplete: true, v1alpha1.ConditionUpgradeable: true,
		v1alpha1.ConditionAvailable: false, v1alpha1.ConditionAccepted: false} {
		s := diagnosis.Snapshot{Now: now(), Lease: lease(time.Second),
			Instances: []v1alpha1.WindowsInstance{instance}, Nodes: []corev1.Node{node}}
		s.Config.Status.Conditions = []metav1.Condition{{Type: kind, Status: metav1.ConditionFalse, Reason: "Off"}}
		if status := diagnosis.Summarize(s); status.Healthy() != want {
			t.Errorf("without %s, healthy is %v", kind, !want)
		}
	}
}

// Programs that parse the output of -o json must find empty lists in it, and not null.
func TestA75_TheStatusOfAnEmptyFleetHasListsInJSON(t *testing.T) {
	t.Parallel()
	text, err := json.Marshal(diagnosis.Summarize(diagnosis.Snapshot{Now: now()}))
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []string{`"hosts":[]`, `"prerequisites":[]`, `"waiting":[]`} {
		if !strings.Contains(string(text), list) {
			t.Errorf("no %s in %s", list, text)
		}
	}
	instance, node := ready(0)
	why, err := json.Marshal(diagnosis.OfHost(&instance, &node, fleet(0), nil))
	if err != nil || !strings.Contains(string(why), `"findings":[]`) {
		t.Errorf("%v: %s", err, why)
	}
}

func TestA75_AnOperatorThatIsAwayIsSaidWithWhatIsKnown(t *testing.T) {
	t.Parallel()
	s := fleet(12)
	s.Lease = lease(20 * time.Minute)
	status := diagnosis.Summarize(s)
	if status.Operator.Problem == "" || len(status.Hosts) != 12 {
		t.Errorf("%+v", status.Operator)
	}
	d := diagnosis.OfHost(&s.Instances[11], &s.Nodes[3], s, nil)
	if d.Healthy() || d.Findings[0].About != "operator" {
		t.Errorf("%+v", d)
	}
}

func TestA75_WhyLeadsFromTheSymptomToTheFix(t *testing.T) {
	t.Parallel()
	s := fleet(12)
	cases := map[string]func() diagnosis.Diagnosis{
		"why-refused": func() diagnosis.Diagnosis {
			return diagnosis.OfHost(&s.Instances[0], nil, s, []diagnosis.Event{{Time: ago(time.Minute), Type: "Warning",
				Reason: "KeyRefused", Object: "WindowsInstance/10.0.0.0", Message: "again"}})
		},
		"why-notready": func() diagnosis.Diagnosis { return diagnosis.OfHost(&s.Instances[10], &s.Nodes[2], s, nil) },
		"why-window":   func() diagnosis.Diagnosis { return diagnosis.OfHost(&s.Instances[9], &s.Nodes[1], s, nil) },
		"why-orphan":   func() diagnosis.Diagnosis { return diagnosis.OfHost(nil, &s.Nodes[1], s, nil) },
	}
	for name, explain := range cases {
		d := explain()
		var out bytes.Buffer
		if err := d.Print(&out, diagnosis.Style{Now: now()}); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.String())
	}
}

// A user who trusts the diagnosis deletes the Node, because the fix says so. So the diagnosis must be correct.
func TestA75_ANodeIsAnOrphanOnlyWhereItIsTheOperatorsAndInstancesWereRead(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		note   map[string]string
		unread bool
		orphan bool
	}{
		"an instance made it":          {note: map[string]string{contract.InstanceAnnotation: "ns/a"}, orphan: true},
		"its daemon reports":           {note: map[string]string{contract.BootIDAnnotation: "1"}, orphan: true},
		"the operator has cordoned it": {note: map[string]string{contract.CordonedAnnotation: "true"}, orphan: true},
		"instances could not be read":  {note: map[string]string{contract.InstanceAnnotation: "ns/a"}, unread: true},
		"somebody joined it by hand":   {note: map[string]string{"node.alpha.kubernetes.io/ttl": "0"}},
		"both":                         {unread: true},
	} {
		_, node := ready(1)
		node.Annotations = c.note
		d := diagnosis.OfHost(nil, &node, diagnosis.Snapshot{Now: now(), InstancesUnread: c.unread}, nil)
		orphan := slices.ContainsFunc(d.Findings, func(f diagnosis.Finding) bool {
			return f.Reason == string(contract.ReasonNodeOrphaned)
		})
		if orphan != c.orphan {
			t.Errorf("%s: orphan is %t, %+v", name, orphan, d.Findings)
		}
	}
}

// The node was rolled back to its previous revision. The operator decides when the failed revision is tried again, and
// not the node's daemon.
func TestA75_WhenARevisionThatFailedIsTriedAgainIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rollout v1alpha1.RolloutStatus
		says    string
	}{
		"by itself": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutWaiting, Revision: newer},
			"this one again after a minute, then after two, four and up to thirty minutes"},
		"when the rollout is resumed": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutHalted, Revision: newer},
			"kubectl windows resume --rollout"},
		"not as long as another is desired": {v1alpha1.RolloutStatus{Phase: v1alpha1.RolloutHalted, Revision: older},
			"this one again after a minute"},
	} {
		s := fleet(12)
		s.Config.Status.Rollout = c.rollout
		i, n := ready(1)
		i.Status.FailedRevision = newer
		i.Status.Conditions = append(i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionUpdateFailed,
			Status: metav1.ConditionTrue, Reason: string(contract.ReasonUpdateFailed), Message: "kubelet ended",
			LastTransitionTime: ago(time.Minute)})
		n.Annotations[contract.RebootRequiredAnnotation] = ""
		var out bytes.Buffer
		d := diagnosis.OfHost(&i, &n, s, nil)
		if err := d.Print(&out, diagnosis.Style{Now: now()}); err != nil {
			t.Fatal(err)
		}
		said := strings.Join(strings.Fields(out.String()), " ")
		if !strings.Contains(said, c.says) || strings.Contains(said, "within 20 minutes") ||
			strings.Contains(said, "the daemon requires a reboot") {
			t.Errorf("%s: %s", name, said)
		}
	}
}

func TestA75_WhyAPodDoesNotStartOnWindows(t *testing.T) {
	t.Parallel()
	s := fleet(12)
	classes := []nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "windows2025"}, Scheduling: &nodev1.Scheduling{
		NodeSelector: map[string]string{corev1.LabelWindowsBuild: "10.0.26100"}}}}
	pending := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"},
		Spec: corev1.PodSpec{NodeSelector: map[string]string{corev1.LabelOSStable: "windows",
			corev1.LabelWindowsBuild: "10.0.26100"}, RuntimeClassName: new("windows2025"),
			Containers: []corev1.Container{{Name: "web", Image: "web:2025", Command: []string{"/bin/sh"}}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled,
			Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable, Message: "0/4 nodes are available",
			LastTransitionTime: ago(time.Second)}}}}
	placed := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart"},
		Spec: corev1.PodSpec{NodeName: "win-010", OS: &corev1.PodOS{Name: corev1.Windows},
			NodeSelector: map[string]string{corev1.LabelOSStable: "windows"},
			Tolerations:  []corev1.Toleration{{Key: "os", Operator: corev1.TolerationOpExists}},
			Containers:   []corev1.Container{{Name: "cart", Image: "cart:2019"}}},
		Status: corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{Name: "cart",
			Image: "cart:2019", RestartCount: 2, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{
				Reason: "ErrImagePull", Message: "no match for platform in manifest"}}}}}}
	for name, pod := range map[string]*corev1.Pod{"why-pod-pending": &pending, "why-pod-image": &placed} {
		findings := lint.Check(t.Context(), []lint.Template{diagnosis.PodTemplate(pod)},
			lint.ClusterOf(s.Nodes, classes), nil)
		d := diagnosis.OfPod(pod, classes, findings, s, nil)
		var out bytes.Buffer
		if err := d.Print(&out, diagnosis.Style{Now: now()}); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.String())
	}
}

func TestA75_WhyHasAFixForWhatKubeletAndTheRuntimeReport(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		reason, message, fix string
	}{
		"a missing Secret": {"CreateContainerConfigError", `secret "db" not found`, "Create the object"},
		"an administrator that may be none": {"CreateContainerConfigError", "container's runAsUserName (ContainerAdministrator) " +
			"which will be regarded as root identity and will break non-root policy", "ContainerUser"},
		"a container that ends as it starts": {"RunContainerError", "hcs::System::Start: failure in a Windows system call: " +
			"The virtual machine or container exited unexpectedly. (0xc0370106)", "build of the node"},
		"a registry's own CA": {"ErrImagePull", "tls: failed to verify certificate: x509: certificate " +
			"signed by unknown authority", "spec.trust.additionalCA"},
		"a pull that is repeated": {"ImagePullBackOff", `Back-off pulling image "a"`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: c.reason, Message: c.message}}}}}}
			found := diagnosis.OfPod(pod, nil, nil, fleet(12), nil).Findings
			if len(found) != 1 || !strings.Contains(found[0].Fix, c.fix) || c.fix == "" && found[0].Fix != "" {
				t.Errorf("of a container: %+v", found)
			}
			// If the pod's sandbox fails, or if a pull is tried again, only events report the failure.
			found = diagnosis.OfPod(&corev1.Pod{}, nil, nil, fleet(12), []diagnosis.Event{{Type: "Warning", Reason: "Failed",
				Message: c.reason + ": " + c.message}, {Type: "Warning", Reason: "Failed", Message: "again: " + c.reason +
				": " + c.message}, {Type: "Normal", Reason: "Pulled", Message: c.message}}).Findings
			if len(found) != map[bool]int{true: 1, false: 0}[c.fix != ""] {
				t.Errorf("of an event: %+v", found)
			}
		})
	}
}

func TestA75_TextOfOthersDoesNotReachTheTerminal(t *testing.T) {
	t.Parallel()
	s := fleet(12)
	says(&s.Instances[0], contract.ReasonKeyRefused, "\x1b]0;owned\x07 \x1b[2J")
	status := diagnosis.Summarize(s)
	d := diagnosis.OfHost(&s.Instances[0], nil, s, nil)
	var out bytes.Buffer
	style := diagnosis.Style{Now: now(), Wide: true}
	if err := errors.Join(status.Print(&out, style), d.Print(&out, style)); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "\x1b") {
		t.Errorf("an escape sequence is in the output:\n%q", out.String())
	}
}

// TestA75_WhatAHostSaysForgesNothing simulates a host that writes characters that control terminals: C1 controls,
// backspace, bidirectional controls, and lines that look like the program's own output.
func TestA75_WhatAHostSaysForgesNothing(t *testing.T) {
	t.Parallel()
	const hostile = "a\u009b2J\b\b\u202e\x9b31m\rgone\nOPERATOR   all is well\nFLEET"
	s := fleet(12)
	one := &s.Instances[0]
	says(one, contract.ReasonKeyRefused, hostile)
	one.Status.Failures = 1
	one.Spec.Address = hostile
	s.Config.Status.Rollout.Message = hostile
	s.Unread = []string{hostile}
	node := &s.Nodes[0]
	node.Annotations = map[string]string{contract.ApplyStatusAnnotation: hostile, contract.StageStatusAnnotation: hostile}
	node.Status.NodeInfo.KubeletVersion = hostile
	events := []diagnosis.Event{{Time: ago(time.Minute), Type: hostile, Reason: hostile, Message: hostile}}
	status := diagnosis.Summarize(s)
	d := diagnosis.OfHost(one, node, s, events)
	held := diagnosis.DrainOf(node, one, []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: hostile}}}, nil)
	for name, printed := range map[string]interface {
		Print(out io.Writer, style diagnosis.Style) error
	}{"status": &status, "why": &d, "drain": &held} {
		var out bytes.Buffer
		if err := printed.Print(&out, diagnosis.Style{Now: now(), Wide: true}); err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"\u009b", "\b", "\u202e", "\r", "\x9b31m", "\nOPERATOR   all", "\nFLEET\n"} {
			if strings.Contains(out.String(), bad) {
				t.Errorf("%s prints %q:\n%q", name, bad, out.String())
			}
		}
		if !utf8.Valid(out.Bytes()) {
			t.Errorf("%s prints bytes that are not UTF-8", name)
		}
	}
}

func TestA75_TheBudgetThatHoldsAPodIsNamed(t *testing.T) {
	t.Parallel()
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}}
	budget := func(name string, allowed int32) policyv1.PodDisruptionBudget {
		return policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
			Spec:   policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
			Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 1, DesiredHealthy: 1}}
	}
	for name, c := range map[string]struct {
		budgets []policyv1.PodDisruptionBudget
		want    string
	}{
		"none":            {},
		"one that allows": {budgets: []policyv1.PodDisruptionBudget{budget("a", 1)}},
		"one that does not": {budgets: []policyv1.PodDisruptionBudget{budget("a", 0)},
			want: "PodDisruptionBudget a allows none: 1 healthy, 1 must be"},
		"two": {budgets: []policyv1.PodDisruptionBudget{budget("a", 1), budget("b", 1)},
			want: "more than one budget covers it, so no eviction is allowed: a, b"},
	} {
		if have := diagnosis.DrainOf(&corev1.Node{}, &v1alpha1.WindowsInstance{}, []corev1.Pod{pod},
			c.budgets).Pods[0].Blocked; have != c.want {
			t.Errorf("%s: %q, want %q", name, have, c.want)
		}
	}
}
