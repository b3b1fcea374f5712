package instance_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// joined returns an instance that is Ready at a revision.
func joined(at string) *v1alpha1.WindowsInstance {
	i := leaving()
	i.Status.Phase, i.Status.DesiredRevision, i.Status.Revision, i.Status.HeldRevision = v1alpha1.PhaseReady, at, at, at
	return i
}

// missed simulates a kubelet that has sent no heartbeat since the test began.
func missed(n *corev1.Node) {
	n.Status.Conditions[0].Status = corev1.ConditionUnknown
	n.Status.Conditions[0].LastTransitionTime = metav1.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
}

func TestAHostThatHasJoinedIsLookedAfterThroughItsNode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node    func(*corev1.Node)
		verdict string
		reason  contract.Reason
	}{
		"all is well": {func(*corev1.Node) {}, "done", ""},
		"kubelet does not report": {
			func(n *corev1.Node) { missed(n) }, "waits",
			contract.ReasonNodeNotReady},
		"the version was taken away": {func(n *corev1.Node) { delete(n.Annotations, contract.RevisionAnnotation) },
			"waits", contract.ReasonRevisionPending},
		"kubelet does not report, and another revision was requested": {
			func(n *corev1.Node) {
				missed(n)
				delete(n.Annotations, contract.RevisionAnnotation)
			}, "waits", contract.ReasonNodeNotReady},
		"another instance has it now": {
			func(n *corev1.Node) { n.Annotations[contract.InstanceAnnotation] = "ns/another" }, "waits",
			contract.ReasonNodeForeign},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := joinedNode(version)
			test.node(n)
			w := newWorld(t, n)
			i := joined(version)
			found, err := w.check(t, i)
			if err != nil || found.Rejoin != nil || found.Update != nil {
				t.Fatalf("found %+v, %v", found, err)
			}
			want(t, found.Outcome, test.verdict, test.reason)
			if w.machine.Dials() != 0 {
				t.Error("the host was dialled")
			}
			serving, err := w.health.Serving(t.Context(), i)
			if err != nil || (serving != nil) != (test.verdict == "done") {
				t.Errorf("serving %v, %v", serving != nil, err)
			}
		})
	}
}

// A host was off until its certificates expired. If the operator joins it again, the host gets new certificates.
func TestANodeThatStaysAwayIsLookedAtOverSSH(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		away   time.Duration
		ready  corev1.ConditionStatus
		rejoin bool
		left   time.Duration
	}{
		"away for a moment":          {away: time.Minute, ready: corev1.ConditionUnknown, left: 9 * time.Minute},
		"away for too long":          {away: 10 * time.Minute, ready: corev1.ConditionUnknown, rejoin: true},
		"not well, as kubelet dates": {away: time.Hour, ready: corev1.ConditionFalse, left: 9 * time.Minute},
		"well for a long time":       {away: time.Hour, ready: corev1.ConditionTrue},
		"away since the clock says":  {away: -time.Hour, ready: corev1.ConditionUnknown, left: 9 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := joinedNode(version)
			w := newWorld(t, n)
			n.Status.Conditions[0].Status = test.ready
			n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.Now().Add(-test.away))
			if err := w.Client.Status().Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			w.sees(n)
			found, err := w.check(t, joined(version))
			if err != nil || (found.Rejoin != nil) != test.rejoin {
				t.Fatalf("found %+v, %v", found, err)
			}
			if test.rejoin && found.Rejoin.Reason != contract.ReasonNodeNotReady ||
				found.Outcome.After.Round(time.Minute) != test.left {
				t.Errorf("rejoin %v, outcome %+v", found.Rejoin, found.Outcome)
			}
		})
	}
}

func TestMarksThatAreGoneComeBack(t *testing.T) {
	t.Parallel()
	bare := joinedNode(version)
	bare.Annotations = map[string]string{contract.RevisionAnnotation: version, contract.CordonedAnnotation: "true"}
	bare.Spec.Unschedulable = true
	w := newWorld(t, bare)
	i := joined(version)
	for range 3 { // first the marks, then the cordon; the third time, nothing is left to do
		if _, err := w.check(t, i); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			t.Fatal(err)
		}
	}
	n := w.getNode(t)
	if n.Annotations[contract.InstanceAnnotation] == "" ||
		n.Annotations[contract.DesiredRevisionAnnotation] != version || n.Spec.Unschedulable {
		t.Errorf("the node has %v, unschedulable %v", n.Annotations, n.Spec.Unschedulable)
	}
	before := n.ResourceVersion
	if _, err := w.check(t, i); err != nil || w.getNode(t).ResourceVersion != before {
		t.Errorf("a healthy node was written: %v", err)
	}
}

func TestANodeWhoseLabelsAreRefusedIsLeftAsItIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode(version))
	w.broken["patch"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("only Windows"))
	found, err := w.check(t, joined(version))
	if err != nil || found.Rejoin != nil || found.Update != nil {
		t.Fatalf("found %+v, %v", found, err)
	}
	if want(t, found.Outcome, "waits", contract.ReasonLabelsRefused); found.Outcome.After <= 0 {
		t.Error("the operator waits for ever")
	}
}

func TestANodeWhoseCordonMayNotBeLiftedIsReported(t *testing.T) {
	t.Parallel()
	for name, desired := range map[string]string{"at its revision": version, "before its turn": "2.0.0-bbbbbbbbbb"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, i := newWorld(t, joinedNode(version)), joined(version)
			w.desired.Revision = desired
			if _, err := w.check(t, i); err != nil {
				t.Fatal(err)
			}
			w.setNode(t, func(n *corev1.Node) {
				n.Spec.Unschedulable, n.Annotations[contract.CordonedAnnotation] = true, "true"
			})
			w.broken["patch"] = apierrors.NewForbidden(corev1.Resource("nodes"), "win-a", errors.New("hands off"))
			found, err := w.check(t, i)
			if err != nil || found.Rejoin != nil || found.Update != nil {
				t.Fatalf("found %+v, %v", found, err)
			}
			if want(t, found.Outcome, "waits", contract.ReasonAPICallFailed); found.Outcome.After <= 0 {
				t.Error("the operator waits for ever")
			}
			w.broken["patch"] = apierrors.NewServiceUnavailable("away")
			if _, err = w.check(t, i); err == nil {
				t.Error("an API server that is down is treated like a refusal")
			}
		})
	}
}

func TestAHostWhoseNodeVanishedJoinsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	found, err := w.check(t, joined(version))
	if err != nil || found.Rejoin == nil || found.Rejoin.Reason != contract.ReasonNodePending {
		t.Errorf("found %+v, %v", found, err)
	}
	w.broken["get"] = apierrors.NewServiceUnavailable("away")
	if _, err = w.check(t, joined(version)); err == nil {
		t.Error("an API server that is down is treated like a missing node")
	}
}

func TestWhatAnotherRevisionTakes(t *testing.T) {
	t.Parallel()
	manifest := func(command, digest string) contract.Manifest {
		return contract.Manifest{
			Services: []contract.Service{{Name: "kubelet", Command: command, Bootstrap: true}},
			Files:    []contract.File{{Path: `C:\k\kubelet.exe`, Digest: digest, Size: 7}},
		}
	}
	old := manifest(`C:\k\kubelet.exe --v=2`, digest("kubelet"))
	for name, test := range map[string]struct {
		to              string
		manifest        contract.Manifest
		unpublished     bool
		payload, drains bool
	}{
		"another operator": {"1.1.0-bbbbbbbbbb", old, false, true, false},
		"new payload that nobody feels": {"1.0.0-bbbbbbbbbb",
			manifest(`C:\k\kubelet.exe --v=2`, digest("newer")), false, true, false},
		"the old manifest can't be read":        {"1.0.0-bbbbbbbbbb", old, true, true, true},
		"nothing that needs a drain or restart": {"1.0.0-bbbbbbbbbb", old, false, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			objects := []client.Object{joinedNode(version)}
			if !test.unpublished {
				data, err := old.Data()
				if err != nil {
					t.Fatal(err)
				}
				objects = append(objects,
					&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns",
						Name: contract.ServicesConfigMapPrefix + version}, Data: data})
			}
			w := newWorld(t, objects...)
			w.desired.Revision, w.desired.Manifest = test.to, test.manifest
			i := joined(version)
			found, err := w.check(t, i)
			if err != nil || found.Update == nil {
				t.Fatalf("found %+v, %v", found, err)
			}
			if found.Update.Payload != test.payload || found.Update.Drains != test.drains ||
				found.Update.Revision != test.to || i.Status.HeldRevision != version {
				t.Errorf("update %+v", *found.Update)
			}
			if got := w.getNode(t).Annotations[contract.DesiredRevisionAnnotation]; got != version {
				t.Errorf("the check moved the node to revision %q", got)
			}
			if serving, _ := w.health.Serving(t.Context(), i); serving == nil {
				t.Error("a node that waits for its update does not count as serving")
			}
			if err = w.Nodes.Request(t.Context(), found.Node,
				journey.NodeFields{Instance: i, Revision: test.to, Bare: true}); err != nil {
				t.Error(err)
			}
			i.Status.DesiredRevision = test.to
			if serving, _ := w.health.Serving(t.Context(), i); serving != nil {
				t.Error("a node that is between two revisions counts as serving")
			}
		})
	}
}

func TestTheCauseThatTheDaemonKnowsIsWhatTheInstanceSays(t *testing.T) {
	t.Parallel()
	n := joinedNode("1")
	n.Annotations[contract.ApplyStatusAnnotation] = "APICallFailed: the host network service does not answer"
	n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionFalse,
		Reason: "KubeletNotReady", Message: "cni plugin not initialized"}
	_, message := journey.NodeReady(n)
	if !strings.Contains(message, "the host network service does not answer") ||
		!strings.Contains(message, "cni plugin not initialized") {
		t.Errorf("the message is %q", message)
	}
}
