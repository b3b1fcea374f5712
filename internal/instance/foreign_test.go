package instance_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// unmanaged returns a Windows Node that a user joined by hand. No instance has its address.
func unmanaged() *corev1.Node {
	n := node()
	n.UID, n.Status.Addresses[0].Address = "by-hand", "10.0.0.77"
	return n
}

// The host is listed with its own address, but reports the name and the address of another user's node.
func TestA50_AHostThatNamesTheAddressOfAnothersNodeDoesNotGetThatNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unmanaged())
	w.machine.Change(func(f *contract.HostFacts) { f.NodeIP = "10.0.0.77" })
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, v1alpha1.PhaseAdopting), "fails", contract.ReasonNodeForeign)
	if n := w.getNode(t); len(n.Annotations) > 0 || n.Spec.Unschedulable || n.Labels[contract.BYOHLabel] != "" {
		t.Errorf("the node was marked: %v, %v", n.Labels, n.Annotations)
	}
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
	if w.getNode(t) == nil {
		t.Error("the node was deleted together with the instance")
	}
}

// A host joins with a free name. In later attempts, it reports other names, but still has the credential of the first
// attempt.
func TestA50_AHostThatWasGivenACredentialKeepsItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, unmanaged())
	w.machine.Change(func(f *contract.HostFacts) { f.Hostname, f.NodeIP = "free", "10.0.0.77" })
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, v1alpha1.PhaseBootstrapping), "done", "")
	for _, name := range []string{"another", "win-a"} {
		w.machine.Change(func(f *contract.HostFacts) { f.Hostname = name })
		i.Status.Phase = v1alpha1.PhasePreflight
		want(t, w.join(t, i, session, v1alpha1.PhaseAdopting), "fails", contract.ReasonHostnameInvalid)
		if i.Status.NodeName != "free" {
			t.Errorf("the node name changed to %q", i.Status.NodeName)
		}
		session.End()
	}
}

// Behind network address translation, only the host knows which address its Node will have.
func TestANodeThatTheHostHasJustRegisteredAtAnAddressOfItsOwnIsTheHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.machine.Change(func(f *contract.HostFacts) { f.NodeIP = "10.0.0.77" })
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, v1alpha1.PhaseAdopting), "waits", contract.ReasonNodePending)
	if err := w.client.Create(t.Context(), unmanaged()); err != nil {
		t.Fatal(err)
	}
	want(t, w.join(t, i, session, v1alpha1.PhaseAdopting), "done", "")
	if n := w.getNode(t); n.Annotations[contract.InstanceAnnotation] == "" {
		t.Error("the node was not adopted")
	}
}

// The host is listed by a DNS name, so only the host itself reports its address. Its removal was forced, and its Node
// still exists. The Node has the host's key, which only the operator writes.
func TestANodeThatHasTheHostsPinnedKeyIsTheHosts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		key     string
		refused bool
	}{"its own": {"AAAA", false}, "another's": {"BBBB", true}, "none": {"", true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n, i := unmanaged(), newInstance()
			n.Annotations = map[string]string{contract.HostKeyTypeAnnotation: "ssh-ed25519",
				contract.HostKeyAnnotation: test.key}
			i.Status.Host, i.Status.HostKey = &v1alpha1.HostInfo{NodeIP: "10.0.0.77"}, "ssh-ed25519 AAAA"
			if problem := journey.Foreign(n, i); (problem != nil) != test.refused {
				t.Errorf("got %v", problem)
			}
		})
	}
}

func TestANodeThatRegistersWhileItsHostIsWaitedForIsTheHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.machine.Change(func(f *contract.HostFacts) { f.NodeIP = "10.0.0.77" })
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, v1alpha1.PhaseAdopting), "waits", contract.ReasonNodePending)
	if err := w.client.Create(t.Context(), unmanaged()); err != nil {
		t.Fatal(err)
	}
	want(t, w.join(t, i, session, v1alpha1.PhaseAdopting), "done", "")
}

func TestANodeWithAnAddressThatTheCloudGaveIsTheHosts(t *testing.T) {
	t.Parallel()
	i := instance()
	i.Spec.Addresses = []string{"10.0.0.77"}
	if problem := journey.Foreign(unmanaged(), i); problem != nil {
		t.Error(problem)
	}
}

// A kubelet may write the annotations of its own Node. So an attacker could name another instance there.
func TestA54_AKubeletThatNamesAnotherInstanceDoesNotKeepItsNode(t *testing.T) {
	t.Parallel()
	lying := joinedNode(version)
	lying.Annotations[contract.InstanceAnnotation] = "ns/another"
	for name, removal := range map[string]v1alpha1.RemovalPolicy{"left": "", "forced": v1alpha1.RemovalForce,
		"discarded": v1alpha1.RemovalDiscard} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, lying.DeepCopy())
			i := leaving()
			i.Status.NodeUID, i.Spec.RemovalPolicy = string(lying.UID), removal
			want(t, w.remove.Next(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
			if w.getNode(t) != nil {
				t.Error("the node still exists")
			}
		})
	}
}

func TestA54_ANodeThatNamesAnotherInstanceIsMarkedAsWhatItIs(t *testing.T) {
	t.Parallel()
	lying := joinedNode(version)
	lying.Annotations[contract.InstanceAnnotation] = "ns/another"
	w := newWorld(t, lying)
	i := instance()
	i.Status.Phase, i.Status.NodeName, i.Status.NodeUID = v1alpha1.PhaseReady, "win-a", string(lying.UID)
	i.Status.DesiredRevision = version
	if _, err := w.check(t, i); err != nil {
		t.Fatal(err)
	}
	if owner := w.getNode(t).Annotations[contract.InstanceAnnotation]; owner != "ns/10.0.0.1" {
		t.Errorf("the node names the instance %s", owner)
	}
}

// On AWS and Google Cloud, a host reads its name from the cloud's metadata. So an attacker on the host could report
// any name.
func TestA50_AHostOfAMachineIsCalledAsTheCloudCallsIt(t *testing.T) {
	t.Parallel()
	const own, others = "ip-10-0-1-2.eu-west-1.compute.internal", "ip-10-0-1-3.eu-west-1.compute.internal"
	machine := &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "win-1"}
	for name, test := range map[string]struct {
		platform contract.Platform
		source   *v1alpha1.Source
		known    []string
		says     string
		refused  bool
	}{
		"its own":                        {contract.PlatformAWS, machine, []string{"10.0.1.2", own}, own, false},
		"its own, in capitals":           {contract.PlatformAWS, machine, []string{strings.ToUpper(own)}, own, false},
		"its own without the domain":     {contract.PlatformGCP, machine, []string{own}, "ip-10-0-1-2", false},
		"another's":                      {contract.PlatformAWS, machine, []string{"10.0.1.2", own}, others, true},
		"another's, on Google Cloud":     {contract.PlatformGCP, machine, []string{own}, "ip-10-0-1-3", true},
		"the beginning of its own":       {contract.PlatformGCP, machine, []string{own}, "ip-10-0-1", true},
		"a Machine that lists no name":   {contract.PlatformAWS, machine, []string{"10.0.1.2"}, own, false},
		"a host without Machine":         {contract.PlatformAWS, nil, nil, own, false},
		"on vSphere, in full":            {contract.PlatformVSphere, nil, nil, "win-a.corp.example", false},
		"on vSphere, without a domain":   {contract.PlatformVSphere, nil, nil, "win-a", false},
		"a name with dots elsewhere":     {contract.PlatformNone, nil, nil, "win-a.corp.example", true},
		"where the host has its own one": {contract.PlatformAzure, machine, []string{own}, "win-a", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.platform = test.platform
			w.machine.Change(func(f *contract.HostFacts) { f.NodeName = test.says })
			i := newInstance()
			i.Spec.Source, i.Spec.Addresses = test.source, test.known
			outcome := w.join(t, i, &journey.Session{}, v1alpha1.PhasePreflight)
			if outcome.IsFailed() != test.refused {
				t.Fatalf("the outcome is %v", outcome.Problem)
			}
			if test.refused {
				want(t, outcome, "fails", contract.ReasonHostnameInvalid)
				if _, taken := w.Claims.Owner(test.says); taken || i.Status.NodeName != "" {
					t.Errorf("the old name is still claimed (%v), and the node name is %q", taken, i.Status.NodeName)
				}
			}
		})
	}
}

// A user lists a host that is a node of another operator, and removes it again. The operator once evicted the node's
// pods and deleted the Node.
func TestA84_ARefusedHostKeepsItsNodeAndNothingOfOurs(t *testing.T) {
	t.Parallel()
	theirs := node()
	theirs.UID, theirs.Labels[contract.BYOHLabel] = "theirs", "true"
	theirs.Annotations = map[string]string{contract.RevisionAnnotation: "10.18.0-1a2b3c4",
		contract.DesiredRevisionAnnotation: "10.18.0-1a2b3c4"}
	w := newWorld(t, theirs)
	w.runPod(t, "pod-a", true)
	w.machine.Answer(contract.VerbPreflight, contract.PreflightAnswer{Facts: w.machine.Facts(),
		Problems: []contract.Problem{*contract.NewProblem(contract.ReasonConflictingSoftware, "service kubelet exists")}})
	before := w.getNode(t)
	i, session := newInstance(), &journey.Session{}
	want(t, w.join(t, i, session, ""), "fails", contract.ReasonConflictingSoftware)
	if w.machine.Uploaded() {
		t.Error("the refused host still has the uploaded daemon")
	}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
	if diff := cmp.Diff(before, w.getNode(t)); diff != "" {
		t.Errorf("the Node changed: %s", diff)
	}
	asked := contract.CleanupRequest{}
	if ok, err := w.machine.Request(contract.VerbCleanup, &asked); err != nil || ok && asked.NodeName != "" {
		t.Errorf("the cleanup request names a node, although the host never joined: %+v, %v", asked, err)
	}
	if w.machine.Uploaded() {
		t.Error("the host still has the uploaded daemon")
	}
}
