package instance_test

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

func instance() *v1alpha1.WindowsInstance {
	return &v1alpha1.WindowsInstance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "10.0.0.1"},
		Spec:       v1alpha1.WindowsInstanceSpec{Address: "10.0.0.1"},
		Status:     v1alpha1.WindowsInstanceStatus{HostKey: "ssh-ed25519 AAAA"},
	}
}

func node() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "win-a", Labels: map[string]string{corev1.LabelOSStable: "windows"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP,
			Address: "10.0.0.1"}}},
	}
}

func TestA05_MarksAreWrittenOnceAndThenLeftAlone(t *testing.T) {
	t.Parallel()
	n := node()
	marks := journey.NodeFields{Instance: instance(), KeyHash: "abc", Revision: "1-x", Cordon: true}
	marks.Apply(n)
	want := map[string]string{
		contract.InstanceAnnotation: "ns/10.0.0.1", contract.PublicKeyHashAnnotation: "abc",
		contract.DesiredRevisionAnnotation: "1-x",
		contract.HostKeyAnnotation:         "AAAA", contract.HostKeyTypeAnnotation: "ssh-ed25519",
		contract.CordonedAnnotation: "true",
	}
	if diff := cmp.Diff(want, n.Annotations); diff != "" {
		t.Error(diff)
	}
	if n.Labels[contract.BYOHLabel] != "true" || n.Labels[contract.OSIDLabel] != "Windows" {
		t.Errorf("labels %v", n.Labels)
	}
	if _, ok := n.Labels[contract.WorkerLabel]; !ok || !n.Spec.Unschedulable {
		t.Error("the worker label or the cordon is missing")
	}
	before := n.DeepCopy()
	marks.Apply(n)
	if diff := cmp.Diff(before, n); diff != "" {
		t.Errorf("applying the marks a second time changes the Node: %s", diff)
	}
}

func TestA05_LabelsAndTaintsThatLeaveTheSpecLeaveTheNode(t *testing.T) {
	t.Parallel()
	i, n := instance(), node()
	n.Labels["zone"] = "a"
	theirs := corev1.Taint{Key: "theirs", Effect: corev1.TaintEffectNoSchedule}
	ours := corev1.Taint{Key: "ours", Value: "x", Effect: corev1.TaintEffectNoSchedule}
	n.Spec.Taints = []corev1.Taint{theirs}
	i.Spec.Labels, i.Spec.Taints = map[string]string{"tier": "gold", "team": "a"}, []corev1.Taint{ours}
	w := newWorld(t, n)
	mark := func() {
		n = w.getNode(t)
		if err := w.Nodes.SetFields(t.Context(), n, journey.NodeFields{Instance: i}); err != nil {
			t.Fatal(err)
		}
	}
	if mark(); n.Labels["tier"] != "gold" || len(n.Spec.Taints) != 3 {
		t.Fatalf("labels %v, taints %v", n.Labels, n.Spec.Taints)
	}
	i.Spec.Labels, i.Spec.Taints = map[string]string{"team": "b"}, nil
	mark()
	if _, there := n.Labels["tier"]; there || n.Labels["team"] != "b" || n.Labels["zone"] != "a" ||
		n.Labels[corev1.LabelOSStable] != "windows" || n.Labels[contract.BYOHLabel] != "true" {
		t.Errorf("labels %v", n.Labels)
	}
	if len(n.Spec.Taints) != 2 || n.Spec.Taints[0].Key != contract.TaintKey || n.Spec.Taints[1] != theirs {
		t.Errorf("taints %v", n.Spec.Taints)
	}
	w.setNode(t, func(n *corev1.Node) { n.Labels["tier"] = "of somebody else by now" })
	if mark(); n.Labels["tier"] == "" {
		t.Error("values that are no longer the operator's were removed")
	}
}

func TestACordonOfSomebodyElseIsNotTakenOver(t *testing.T) {
	t.Parallel()
	n := node()
	n.Spec.Unschedulable = true
	journey.NodeFields{Instance: instance(), Cordon: true}.Apply(n)
	if _, ours := n.Annotations[contract.CordonedAnnotation]; ours {
		t.Error("an administrator's cordon was marked as the operator's, so the operator would uncordon the node")
	}
}

func TestA04_TheOSTaintIsFirst(t *testing.T) {
	t.Parallel()
	os := corev1.Taint{Key: "os", Value: "Windows", Effect: corev1.TaintEffectNoSchedule}
	other := corev1.Taint{Key: "node.kubernetes.io/not-ready", Effect: corev1.TaintEffectNoSchedule}
	own := corev1.Taint{Key: "team", Value: "blue", Effect: corev1.TaintEffectNoExecute}
	for name, test := range map[string]struct{ have, want []corev1.Taint }{
		"absent":         {nil, []corev1.Taint{os, own}},
		"behind another": {[]corev1.Taint{other, os}, []corev1.Taint{os, other, own}},
		"with another own": {[]corev1.Taint{os, {Key: "team", Value: "red", Effect: corev1.TaintEffectNoExecute}},
			[]corev1.Taint{os, own}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, i := node(), instance()
			n.Spec.Taints, i.Spec.Taints = test.have, []corev1.Taint{own}
			journey.NodeFields{Instance: i}.Apply(n)
			if diff := cmp.Diff(test.want, n.Spec.Taints); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOnlyTheHostsOwnNodeIsAdopted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		edit    func(*corev1.Node)
		foreign bool
	}{
		"a fresh Windows node with the host's address": {func(*corev1.Node) {}, false},
		"a node that is marked as ours, whatever its address": {func(n *corev1.Node) {
			n.Annotations, n.Status.Addresses = map[string]string{contract.InstanceAnnotation: "ns/10.0.0.1"}, nil
		}, false},
		"a node of another instance": {func(n *corev1.Node) {
			n.Annotations = map[string]string{contract.InstanceAnnotation: "ns/10.0.0.11"}
		}, true},
		"a Linux node":                {func(n *corev1.Node) { n.Labels[corev1.LabelOSStable] = "linux" }, true},
		"a node with another address": {func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.2" }, true},
		"an address as a substring":   {func(n *corev1.Node) { n.Status.Addresses[0].Address = "10.0.0.11" }, true},
		"an external address that fits": {func(n *corev1.Node) { n.Status.Addresses[0].Type = corev1.NodeExternalIP },
			true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node()
			test.edit(n)
			if got := journey.Foreign(n, instance()) != nil; got != test.foreign {
				t.Errorf("foreign = %v", got)
			}
		})
	}
}

func TestANodeIsWhoTheCloudSaysItIs(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node, wanted string
		marked       bool
		foreign      bool
	}{
		"the same": {node: "aws:///z/i-1", wanted: "aws:///z/i-1"},
		"the same but for its case": {node: "azure:///subscriptions/A/resourceGroups/RG/x",
			wanted: "azure:///subscriptions/a/resourcegroups/rg/x"},
		"the Node has none yet": {wanted: "aws:///z/i-1"},
		"the instance has none": {node: "aws:///z/i-1"},
		"another":               {node: "aws:///z/i-2", wanted: "aws:///z/i-1", foreign: true},
		"another, whatever its marks": {node: "aws:///z/i-2", wanted: "aws:///z/i-1", marked: true,
			foreign: true},
		"one that begins as the other":          {node: "aws:///z/i-12", wanted: "aws:///z/i-1", foreign: true},
		"another in the zone of the same cloud": {node: "aws:///y/i-1", wanted: "aws:///z/i-1", foreign: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, i := node(), instance()
			n.Spec.ProviderID, i.Spec.ProviderID = test.node, test.wanted
			if test.marked {
				n.Annotations = map[string]string{contract.InstanceAnnotation: "ns/10.0.0.1"}
			}
			if got := journey.Foreign(n, i) != nil; got != test.foreign {
				t.Errorf("foreign = %v", got)
			}
		})
	}
}

func TestANodeWithTheAddressThatTheUserChoseIsTheHosts(t *testing.T) {
	t.Parallel()
	n, i := node(), instance()
	n.Status.Addresses[0].Address, i.Spec.NodeIP = "192.0.2.7", "192.0.2.7"
	if problem := journey.Foreign(n, i); problem != nil {
		t.Error(problem)
	}
}

func TestANodeOfAMachineIsNotMarkedAsBroughtByItsOwner(t *testing.T) {
	t.Parallel()
	n, i := node(), instance()
	i.Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "win-a"}
	i.Spec.Labels = map[string]string{"team": "blue"}
	journey.NodeFields{Instance: i}.Apply(n)
	for label, wanted := range map[string]bool{contract.BYOHLabel: false, contract.WorkerLabel: false,
		contract.OSIDLabel: true, "team": true} {
		if _, has := n.Labels[label]; has != wanted {
			t.Errorf("has %s: %v", label, has)
		}
	}
}

func TestA87_ANewNodeOfClusterAPIGetsItsTaintOnce(t *testing.T) {
	t.Parallel()
	n, i := node(), instance()
	isTainted := func() bool {
		return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == contract.ClusterAPITaint && t.Effect == corev1.TaintEffectNoSchedule
		})
	}
	if (journey.NodeFields{Instance: i}).Apply(n); isTainted() {
		t.Error("a host that Cluster API doesn't know has Cluster API's taint, which nothing would remove")
	}
	n, i.Annotations = node(), map[string]string{contract.BootstrapConfigAnnotation: "uid"}
	if (journey.NodeFields{Instance: i}).Apply(n); !isTainted() {
		t.Error("a new Node of Cluster API lacks the taint")
	}
	n.Spec.Taints = nil // Cluster API removes it
	if (journey.NodeFields{Instance: i}).Apply(n); isTainted() {
		t.Error("the taint was added again")
	}
}

// kubelet reports the host name as the Node's MachineID. hybrid-overlay-node finds its own Node by this MachineID, so
// two hosts with the same host name would get each other's network.
func TestA43_TwoHostsOfOneHostNameAreRefusedOnTheHybridOverlay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		network  string
		platform contract.Platform
		other    v1alpha1.WindowsInstanceSpec // the instance of another host whose host name is win-a
		want     contract.Reason
	}{
		"in two domains": {blueprint.NetworkOVNKubernetes, contract.PlatformVSphere, v1alpha1.WindowsInstanceSpec{},
			contract.ReasonHostDuplicate},
		"which the cloud names": {blueprint.NetworkOVNKubernetes, contract.PlatformAWS, v1alpha1.WindowsInstanceSpec{},
			contract.ReasonHostDuplicate},
		"of which one will be renamed": {blueprint.NetworkOVNKubernetes, contract.PlatformVSphere,
			v1alpha1.WindowsInstanceSpec{Hostname: "win-b"}, ""},
		"on another network": {blueprint.NetworkExternal, contract.PlatformVSphere, v1alpha1.WindowsInstanceSpec{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.network, w.platform = test.network, test.platform
			other := newInstance()
			other.Name, other.UID, other.Spec = "10.0.0.2", "uid-b", test.other
			other.Status.NodeName = "win-a.other.example"
			other.Status.Host = &v1alpha1.HostInfo{Hostname: "win-a", MachineID: "machine-win-b"}
			w.Claims.Remember(other)
			w.machine.Change(func(f *contract.HostFacts) { f.NodeName = "win-a.corp.example" })
			i := newInstance()
			checked := w.Check(t.Context(), newInstance(), &journey.Session{})
			joined := w.join(t, i, &journey.Session{}, v1alpha1.PhasePreflight)
			if test.want == "" && (checked.IsFailed() || joined.IsFailed()) {
				t.Errorf("the check returns %v, the join returns %v", checked.Problem, joined.Problem)
			}
			if test.want != "" {
				want(t, checked, "fails", test.want)
				want(t, joined, "fails", test.want)
			}
			w.Claims.Forget(other.UID)
			if outcome := w.join(t, i, &journey.Session{}, v1alpha1.PhasePreflight); outcome.IsFailed() {
				t.Errorf("after the other host was removed: %v", outcome.Problem)
			}
		})
	}
}

func TestA10_TheFirstClaimOfANodeNameHolds(t *testing.T) {
	t.Parallel()
	claims := journey.NewClaims()
	a := journey.Claimant{UID: "a", Key: types.NamespacedName{Name: "a"}, MachineID: "m"}
	b := journey.Claimant{UID: "b", Key: types.NamespacedName{Name: "b"}, MachineID: "m"}
	if _, ok := claims.Claim("win", a); !ok {
		t.Fatal("the first claim failed")
	}
	if owner, ok := claims.Claim("win", b); ok || owner.UID != "a" {
		t.Fatalf("the second claim was granted to %v", owner)
	}
	if _, ok := claims.Claim("win", a); !ok {
		t.Error("claiming again failed")
	}
	if owner, ok := claims.Claim("copy", b); ok || owner.UID != "a" {
		t.Errorf("a copy of the host's disk with another name got %v", owner)
	}
	if _, ok := claims.Claim("other", journey.Claimant{UID: "c", MachineID: "another"}); !ok {
		t.Error("another host could not claim another name")
	}
	if _, ok := claims.Claim("nameless", journey.Claimant{UID: "d"}); !ok {
		t.Error("a host with an unknown installation could not claim a name")
	}
	claims.Forget("a")
	if _, ok := claims.Claim("win", b); !ok {
		t.Error("a released name can't be claimed")
	}
}
