package instance_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/test/hosttest"
)

const drainTimeout = 10 * time.Minute

// leaving returns an instance that has joined.
func leaving() *v1alpha1.WindowsInstance {
	i := newInstance()
	i.Status.HostKey, i.Status.NodeName, i.Status.Phase = "ssh-ed25519 AAAAwin-a", "win-a", v1alpha1.PhaseRemoving
	return i
}

// runPod creates a pod on the node. If blocked is set, a disruption budget blocks its eviction. Otherwise an eviction
// deletes the pod.
func (w *world) runPod(t *testing.T, name string, blocked bool, owners ...metav1.OwnerReference) {
	t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "pod", OwnerReferences: owners},
		Spec:       corev1.PodSpec{NodeName: "win-a"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if _, err := w.pods.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.onEviction(func(eviction *policyv1.Eviction) (bool, error) {
		if eviction.Name != name {
			return false, nil
		}
		if blocked {
			return true, apierrors.NewTooManyRequests("the disruption budget needs 1 healthy pod", 0)
		}
		gvr := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
		return true, w.pods.Tracker().Delete(gvr, "default", name)
	})
}

// onEviction sets a handler for evictions. answer returns whether it handles the eviction.
func (w *world) onEviction(answer func(eviction *policyv1.Eviction) (bool, error)) {
	w.pods.PrependReactor("create", "pods/eviction", func(action kubetesting.Action) (bool, runtime.Object, error) {
		create, ok := action.(kubetesting.CreateAction)
		if !ok {
			return false, nil, nil
		}
		eviction, ok := create.GetObject().(*policyv1.Eviction)
		if !ok {
			return false, nil, nil
		}
		mine, err := answer(eviction)
		return mine, nil, err
	})
}

// The operator pins the key of such a host when it approves the host's certificate, before the host connects.
func TestA86_AHostWithoutSSHThatNeverConnectedLeavesAtOnce(t *testing.T) {
	t.Parallel()
	w, i := newWorld(t), newInstance()
	i.Spec.ByItself = &v1alpha1.ByItself{}
	i.Status.HostKey, i.Status.Phase = "pinned", v1alpha1.PhaseRemoving
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
}

func TestA32_AHostThatLeavesIsDrainedCleanedAndForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", false)
	i, session := leaving(), &journey.Session{}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonDraining)
	if n := w.getNode(t); n == nil || !n.Spec.Unschedulable {
		t.Fatal("the Node was deleted or uncordoned before its pods were evicted")
	}
	if slices.Contains(w.machine.Calls(), contract.VerbCleanup) {
		t.Fatal("the host was cleaned before its pods were evicted")
	}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
	if w.getNode(t) != nil || w.machine.Uploaded() || w.machine.Open() != 0 || w.machine.Dials() != 1 {
		t.Errorf("node %v, uploaded %v, %d open of %d connections", w.getNode(t), w.machine.Uploaded(), w.machine.Open(),
			w.machine.Dials())
	}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
}

// When cleanup removes the network, the connection breaks, or the SSH server ends its commands. The host finishes the
// cleanup by itself, so only a second break counts as a failure.
func TestA45_ACleanupThatBreaksItsOwnConnectionIsNoFailureTheFirstTime(t *testing.T) {
	t.Parallel()
	for _, reason := range []contract.Reason{contract.ReasonConnectionLost, contract.ReasonDaemonCallFailed} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			i, session := leaving(), &journey.Session{}
			w.machine.Fail(string(contract.VerbCleanup), contract.NewProblem(reason, "it was killed"))
			want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonConnectionLost)
			meta.SetStatusCondition(&i.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionProgressing,
				Status: metav1.ConditionTrue, Reason: string(contract.ReasonConnectionLost)}) // the controller saves it
			want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "fails", reason)
			w.machine.Fail(string(contract.VerbCleanup), nil)
			want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
			if w.getNode(t) != nil {
				t.Error("the Node still exists")
			}
		})
	}
}

func TestAHostThatWasNeverOursIsLeftAlone(t *testing.T) {
	t.Parallel()
	foreign := joinedNode("1")
	foreign.Annotations[contract.InstanceAnnotation] = "ns/another"
	for name, edit := range map[string]func(*v1alpha1.WindowsInstance){
		"never reached": func(i *v1alpha1.WindowsInstance) {
			i.Status.HostKey,
				i.Status.NodeName = "", ""
		},
		"reached, but another instance's host": func(i *v1alpha1.WindowsInstance) { i.Status.NodeName = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, foreign.DeepCopy())
			w.machine.Fail(hosttest.Dialling, errors.New("must not be asked"))
			i := leaving()
			edit(i)
			want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
			if w.machine.Dials() != 0 || w.getNode(t) == nil || w.getNode(t).Spec.Unschedulable {
				t.Error("a foreign host or node was changed")
			}
		})
	}
}

func TestANodeOfAnotherStaysWhenAHostLeaves(t *testing.T) {
	t.Parallel()
	foreign := joinedNode("1")
	foreign.Annotations[contract.InstanceAnnotation] = "ns/another"
	w := newWorld(t, foreign)
	want(t, w.remove.Leave(t.Context(), leaving(), &journey.Session{}, drainTimeout), "done", "")
	if n := w.getNode(t); n == nil || n.Spec.Unschedulable {
		t.Error("a foreign node was cordoned or deleted")
	}
}

func TestANodeThatKubeletHasJustRegisteredGoesToo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, node()) // the Node has no mark yet, because the join was interrupted
	i := leaving()
	i.Status.BootstrapCredentials = []string{"JTI=token"}
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
	if w.getNode(t) != nil {
		t.Error("the host was cleaned, but its Node still exists")
	}
}

func TestA33_ForceLetsGoOfWhatCanNotBeReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", true)
	w.machine.Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonUnreachable, "gone for good"))
	i, session := leaving(), &journey.Session{}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "fails", contract.ReasonUnreachable)
	if n := w.getNode(t); n == nil || !n.Spec.Unschedulable {
		t.Fatal("the Node of an unreachable host must stay, with a cordon")
	}
	i.Spec.RemovalPolicy = v1alpha1.RemovalForce
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
	if w.getNode(t) != nil {
		t.Error("the Node still exists")
	}
}

func TestA32_AHostThatWasReinstalledLeaves(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		node  func(*corev1.Node, time.Time)
		leads bool
	}{
		"its node is Ready, so the host is elsewhere": {func(n *corev1.Node, _ time.Time) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}, false},
		"its node has just ceased to be Ready": {func(n *corev1.Node, now time.Time) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.NewTime(now.Add(-time.Minute))}}
		}, false},
		"its node is not Ready for long": {func(n *corev1.Node, now time.Time) {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown,
				LastTransitionTime: metav1.NewTime(now.Add(-10 * time.Minute))}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			w.setNode(t, func(n *corev1.Node) { test.node(n, w.clock) })
			i, session := leaving(), &journey.Session{}
			i.Status.HostKey, i.Spec.HostKey = "ssh-ed25519 BBBBofbefore", "ssh-ed25519 BBBBofbefore"
			if !test.leads {
				want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "fails", contract.ReasonHostKeyMismatch)
				if w.getNode(t) == nil {
					t.Error("the Node was deleted, although its host may still run")
				}
				return
			}
			want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
			if w.getNode(t) != nil || slices.Contains(w.machine.Calls(), contract.VerbCleanup) {
				t.Errorf("node %v, calls %v", w.getNode(t), w.machine.Calls())
			}
		})
	}
}

func TestForceCleansWhatCanBeReached(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", true)
	i := leaving()
	i.Spec.RemovalPolicy = v1alpha1.RemovalForce
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
	if !slices.Contains(w.machine.Calls(), contract.VerbCleanup) || w.machine.Uploaded() || w.getNode(t) != nil {
		t.Errorf("the host can be reached, but was not cleaned because of a blocked pod: %v", w.machine.Calls())
	}
}

func TestForceGoesOnAfterAnyFailureAtTheHost(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(*hosttest.Machine){
		"uploading":           func(m *hosttest.Machine) { m.Fail(hosttest.Uploading, errors.New("no")) },
		"cleaning":            func(m *hosttest.Machine) { m.Fail(string(contract.VerbCleanup), errors.New("no")) },
		"removing the upload": func(m *hosttest.Machine) { m.Fail(hosttest.RemovingUpload, errors.New("no")) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			arrange(w.machine)
			i := leaving()
			want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "fails", contract.ReasonInternal)
			i.Spec.RemovalPolicy = v1alpha1.RemovalForce
			want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
			if w.getNode(t) != nil {
				t.Error("the Node still exists")
			}
		})
	}
}

func TestADrainThatIsBlockedIsNamedAndGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", true)
	i, session := leaving(), &journey.Session{}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonDraining)
	w.clock = w.clock.Add(drainTimeout + time.Second)
	outcome := w.remove.Leave(t.Context(), i, session, drainTimeout)
	want(t, outcome, "waits", contract.ReasonDrainBlocked)
	if !strings.Contains(outcome.Problem.Detail, "default/pod-a") {
		t.Errorf("the detail lacks the pod: %s", outcome.Problem.Detail)
	}
	if w.machine.Dials() != 1 {
		t.Errorf("%d connections during the wait", w.machine.Dials())
	}
	w.pods.PrependReactor("create", "pods/eviction", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, w.pods.Tracker().Delete(schema.GroupVersionResource{Version: "v1", Resource: "pods"},
			"default", "pod-a")
	})
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonDrainBlocked)
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
}

// A deleted controller has left a finalizer on the pod. Even a forced deletion does not remove the finalizer.
func TestAPodThatHasEndedAndIsHeldByAFinalizerHoldsNoDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	deleted := metav1.NewTime(w.clock.Add(-time.Hour))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "ended", DeletionTimestamp: &deleted,
			Finalizers: []string{"example.com/gone"}},
		Spec:   corev1.PodSpec{NodeName: "win-a"},
		Status: corev1.PodStatus{Phase: corev1.PodFailed},
	}
	if _, err := w.pods.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	want(t, w.remove.Leave(t.Context(), leaving(), &journey.Session{}, drainTimeout), "done", "")
}

func TestAPodThatDoesNotEndIsNamed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	ending := metav1.NewTime(w.clock)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "stuck", DeletionTimestamp: &ending},
		Spec:       corev1.PodSpec{NodeName: "win-a"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	if _, err := w.pods.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	i, session := leaving(), &journey.Session{}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonDraining)
	w.clock = w.clock.Add(drainTimeout + time.Second)
	outcome := w.remove.Leave(t.Context(), i, session, drainTimeout)
	want(t, outcome, "waits", contract.ReasonDrainBlocked)
	if !strings.Contains(outcome.Problem.Detail, "default/stuck") {
		t.Errorf("the detail lacks the pod: %s", outcome.Problem.Detail)
	}
}

func TestAHostThatIsNotCleanDoesNotLeave(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.machine.Answer(contract.VerbCleanup,
		contract.CleanupAnswer{Left: []contract.Problem{{Reason: contract.ReasonFileFailed,
			Detail: `C:\k\kubelet.exe is in use`}}})
	i, session := leaving(), &journey.Session{}
	outcome := w.remove.Leave(t.Context(), i, session, drainTimeout)
	want(t, outcome, "fails", contract.ReasonCleanupFailed)
	if !strings.Contains(outcome.Problem.Detail, "kubelet.exe") || w.getNode(t) == nil {
		t.Errorf("the detail lacks the remaining parts, or the Node was deleted: %s", outcome.Problem.Detail)
	}
}

func TestTheAPIServerMayGoAwayWhileAHostLeaves(t *testing.T) {
	t.Parallel()
	down := apierrors.NewServiceUnavailable("away")
	for _, verb := range []string{"get", "patch", "delete"} {
		t.Run(verb, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			w.broken[verb] = down
			i, session := leaving(), &journey.Session{}
			want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonAPICallFailed)
			delete(w.broken, verb)
			want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
			cleaned := slices.DeleteFunc(w.machine.Calls(),
				func(v contract.Verb) bool { return v != contract.VerbCleanup })
			if w.machine.Dials() != 1 || len(cleaned) != 1 || w.getNode(t) != nil {
				t.Errorf("%d connections, cleaned %d times, node %v", w.machine.Dials(), len(cleaned), w.getNode(t))
			}
		})
	}
}

// If another user's policy refuses each change of the Node, a forced removal must continue all the same.
func TestForceCordonsANodeThatSomebodyElseHasJustWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", true)
	w.broken["patch"] = apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "win-a", errors.New("newer"))
	i := leaving()
	i.Spec.RemovalPolicy = v1alpha1.RemovalForce
	outcome := w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout)
	want(t, outcome, "waits", contract.ReasonInProgress)
	if calls := w.machine.Calls(); len(calls) != 0 || outcome.After > time.Second {
		t.Errorf("calls %v, retried after %s", calls, outcome.After)
	}
	delete(w.broken, "patch")
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
}

// A host writes its Node all the time, so each write with a resource version conflicts. The Node must be cordoned and
// drained all the same, with each removal policy.
func TestAHostThatWritesItsNodeWithoutEndHoldsUpNoDrain(t *testing.T) {
	t.Parallel()
	written := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "win-a", errors.New("newer"))
	for name, policy := range map[string]v1alpha1.RemovalPolicy{"cleaned": v1alpha1.RemovalClean,
		"forced": v1alpha1.RemovalForce} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			w.runPod(t, "pod-a", true)
			w.broken["patch a version"] = written
			i := leaving()
			i.Spec.RemovalPolicy = policy
			outcome := w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout)
			if node := w.getNode(t); policy == v1alpha1.RemovalClean && (node == nil || !node.Spec.Unschedulable ||
				node.Annotations[contract.CordonedAnnotation] != "true") {
				t.Fatalf("not cordoned: %+v, %+v", node, outcome)
			}
			for range 5 {
				w.clock = w.clock.Add(time.Minute)
				if outcome.IsDone() {
					break
				}
				_ = w.pods.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default", "pod-a")
				outcome = w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout)
			}
			want(t, outcome, "done", "")
			if w.getNode(t) != nil {
				t.Error("the Node still exists")
			}
		})
	}
}

// The same must work for an upgrade or a reboot. If a user uncordoned the node in the meantime, it stays uncordoned.
// Another user's cordon doesn't count as the operator's.
func TestANodeThatIsWrittenWithoutEndIsCordonedAsItIs(t *testing.T) {
	t.Parallel()
	written := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "win-a", errors.New("newer"))
	for name, test := range map[string]struct {
		meanwhile        func(node *corev1.Node)
		cordoned, marked bool
		conflict         bool
	}{
		"as it was read":       {func(*corev1.Node) {}, true, true, false},
		"cordoned by somebody": {func(n *corev1.Node) { n.Spec.Unschedulable = true }, true, false, false},
		"uncordoned by somebody": {func(n *corev1.Node) { n.Annotations[contract.CordonedAnnotation] = "true" },
			false, true, true},
		"another's by now": {func(n *corev1.Node) { n.UID = "another" }, false, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			read := w.getNode(t)
			now := read.DeepCopy()
			test.meanwhile(now)
			now.Annotations["written"] = "meanwhile"
			if err := w.client.Update(t.Context(), now); err != nil {
				t.Fatal(err)
			}
			w.broken["patch a version"] = written
			err := w.upgrade.Nodes.Cordon(t.Context(), read)
			node := w.getNode(t)
			if (err != nil) != test.conflict || test.conflict && !apierrors.IsConflict(err) ||
				node.Spec.Unschedulable != test.cordoned ||
				(node.Annotations[contract.CordonedAnnotation] == "true") != test.marked ||
				node.Annotations["written"] != "meanwhile" {
				t.Errorf("%v: cordoned %v, annotations %v", err, node.Spec.Unschedulable, node.Annotations)
			}
		})
	}
}

func TestForceGoesOnWhereTheNodeMayNotBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.broken["patch"] = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "win-a", errors.New("no"))
	i := leaving()
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "waits", contract.ReasonAPICallFailed)
	i.Spec.RemovalPolicy = v1alpha1.RemovalForce
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
	if !slices.Contains(w.machine.Calls(), contract.VerbCleanup) || w.getNode(t) != nil {
		t.Errorf("calls %v, node %v", w.machine.Calls(), w.getNode(t))
	}
}

func TestAHostWhoseLabelsAreRefusedLeavesAllTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", false)
	i, session := leaving(), &journey.Session{}
	i.Spec.Labels = map[string]string{corev1.LabelOSStable: string(corev1.Linux)}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonDraining)
	if n := w.getNode(t); !n.Spec.Unschedulable || n.Annotations[contract.CordonedAnnotation] != "true" {
		t.Errorf("the node is not cordoned: %v", n)
	}
	want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "done", "")
}

func TestPodsThatCanNotBeListedOrEvictedAreAWait(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ verb, resource string }{"listed": {"list", "pods"},
		"evicted": {"create", "pods/eviction"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			w.runPod(t, "pod-a", false)
			w.pods.PrependReactor(test.verb, test.resource, func(kubetesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewServiceUnavailable("away")
			})
			session := &journey.Session{}
			want(t, w.remove.Leave(t.Context(), leaving(), session, drainTimeout), "waits",
				contract.ReasonAPICallFailed)
			if !session.Connected() {
				t.Error("the connection was closed")
			}
		})
	}
}

func TestAPodWhoseEvictionIsRefusedIsNamedAndTheOthersGo(t *testing.T) {
	t.Parallel()
	for name, refused := range map[string]error{
		"two disruption budgets": apierrors.NewInternalError(errors.New("This pod has more than one " +
			"PodDisruptionBudget")),
		"a webhook that denies": apierrors.NewForbidden(corev1.Resource("pods"), "pod-a",
			errors.New("admission webhook: no")),
		"a webhook with its own words": apierrors.NewBadRequest("admission webhook: no"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			w.runPod(t, "pod-a", false)
			w.runPod(t, "pod-b", false)
			w.onEviction(func(eviction *policyv1.Eviction) (bool, error) { return eviction.Name == "pod-a", refused })
			i, session := leaving(), &journey.Session{}
			want(t, w.remove.Leave(t.Context(), i, session, drainTimeout), "waits", contract.ReasonDraining)
			w.clock = w.clock.Add(drainTimeout + time.Second)
			outcome := w.remove.Leave(t.Context(), i, session, drainTimeout)
			want(t, outcome, "waits", contract.ReasonDrainBlocked)
			if !strings.Contains(outcome.Problem.Detail, "default/pod-a") || strings.Contains(outcome.Problem.Detail,
				"pod-b") || !strings.Contains(outcome.Problem.Detail, refused.Error()) {
				t.Errorf("the detail is %s", outcome.Problem.Detail)
			}
		})
	}
}

func TestAfterARestartWhatWasClaimedIsClaimedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := leaving()
	i.Status.Host = &v1alpha1.HostInfo{MachineID: "m"}
	w.Claims.Remember(i)
	if owner, ok := w.Claims.Owner("win-a"); !ok || owner.UID != i.UID || owner.MachineID != "m" ||
		owner.Key.Name != i.Name {
		t.Errorf("claimed by %+v", owner)
	}
	never := newInstance()
	never.UID = "never"
	w.Claims.Remember(never)
	if _, ok := w.Claims.Owner(""); ok {
		t.Error("an instance without a node claimed the empty name")
	}
}

func TestAHostIsCleanedAsTheOneThatWasClaimed(t *testing.T) {
	t.Parallel()
	known := &v1alpha1.HostInfo{MachineID: "machine-win-a"}
	for name, test := range map[string]struct {
		host *v1alpha1.HostInfo
		uid  string
		want contract.CleanupRequest
	}{
		"its installation is known": {known, "uid",
			contract.CleanupRequest{NodeName: "win-a", MachineID: "machine-win-a"}},
		"an older release noted only its name": {nil, "uid", contract.CleanupRequest{NodeName: "win-a"}},
		"it was given no credential: it may be called as in an earlier life": {known, "",
			contract.CleanupRequest{MachineID: "machine-win-a"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, i := newWorld(t, joinedNode("1")), leaving()
			i.Status.Host, i.Status.NodeUID = test.host, test.uid
			w.remove.Claims.Remember(i)
			want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
			asked := contract.CleanupRequest{}
			if _, err := w.machine.Request(contract.VerbCleanup, &asked); err != nil || asked != test.want {
				t.Errorf("the cleanup request is %+v: %v", asked, err)
			}
		})
	}
}

func TestANameIsItsOwnersThoughAnotherHasItsInstallation(t *testing.T) {
	t.Parallel()
	claims := journey.NewClaims()
	claims.Claim("win-b", journey.Claimant{UID: "b", MachineID: "m"})
	i := leaving()
	i.Status.Host = &v1alpha1.HostInfo{MachineID: "m"}
	claims.Remember(i)
	if owner, ok := claims.Owner("win-a"); !ok || owner.UID != i.UID {
		t.Errorf("claimed by %+v", owner)
	}
}

// The connection broke while the daemon was uploaded, or the daemon can't run on the host. So the host was not
// claimed. The uploaded files must still be removed.
func TestWhatAHostGotBeforeItWasClaimedIsTakenAway(t *testing.T) {
	t.Parallel()
	for name, edit := range map[string]func(*v1alpha1.WindowsInstance){
		"nobody knows who it is": func(*v1alpha1.WindowsInstance) {},
		"another host has its name": func(i *v1alpha1.WindowsInstance) {
			i.Status.Host = &v1alpha1.HostInfo{Hostname: "win-b", MachineID: "machine-2"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			i := leaving()
			i.Status.NodeName = ""
			edit(i)
			conn, err := w.machine.Dial(t.Context(), host.Target{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err = conn.Upload(t.Context(), host.Blob{}); err != nil || !w.machine.Uploaded() {
				t.Fatal("the daemon was not uploaded", err)
			}
			_ = conn.Close()
			w.machine.Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonUnreachable, "off"))
			want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "fails", contract.ReasonUnreachable)
			w.machine.Fail(hosttest.Dialling, nil)
			if outcome := w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout); !outcome.IsDone() {
				t.Fatal(outcome)
			}
			if w.machine.Uploaded() || w.machine.Open() != 0 || slices.Contains(w.machine.Calls(), contract.VerbCleanup) {
				t.Errorf("uploaded %t, %d open, called %v", w.machine.Uploaded(), w.machine.Open(), w.machine.Calls())
			}
		})
	}
}

func TestWhatAnotherInstanceHasOnItsHostStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	i := leaving()
	i.Status.NodeName, i.Status.Host = "", &v1alpha1.HostInfo{Hostname: "win-a", MachineID: "machine-1"}
	w.remove.Claims.Claim("win-a", journey.Claimant{UID: "other", MachineID: "machine-1"})
	want(t, w.remove.Leave(t.Context(), i, &journey.Session{}, drainTimeout), "done", "")
	if w.machine.Dials() != 0 {
		t.Error("another instance's host was changed")
	}
}
