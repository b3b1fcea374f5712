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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubetesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/test/podstest"
)

// newPodServer serves pods of a size, with the operator's client for pods.
func newPodServer(t *testing.T, count, size int) (*podstest.Server, *world) {
	t.Helper()
	s := podstest.New(t, count, size)
	client, err := pods.NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, joinedNode("1"))
	w.Pods = client
	w.Now = func() time.Time { return w.clock.Add(time.Duration(s.Passed.Load())) }
	return s, w
}

// A user who may create pods can assign them to a node, with up to 1.5 MB each.
func TestA55_LargePodsOnANodeCostADrainBoundedMemory(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 60, 1<<20)
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	if len(s.Pods) > 0 {
		t.Errorf("%d pods were not evicted", len(s.Pods))
	}
	if read := s.Largest.Load(); read != pods.MaxBytes+1 { // one more byte shows that the answer is too large
		t.Errorf("%d bytes of a too large answer were read", read)
	}
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "done", "")
}

// There are so many large pods that one list would keep the operator busy until the API server's time limit. The
// operator must end the pass, and continue in the next one.
func TestA55_ManyLargePodsEndAPassOfADrain(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 40, 1<<20)
	s.Slow = 10 * time.Second
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	if len(s.Pods) == 0 || len(s.Pods) == 40 {
		t.Fatalf("%d pods are left after the first pass", len(s.Pods))
	}
	for range 20 {
		w.Drain(t.Context(), leaving(), "win-a", drainTimeout)
	}
	if len(s.Pods) > 0 {
		t.Errorf("%d pods were not evicted", len(s.Pods))
	}
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "done", "")
}

// If a pass ended before it has seen all pods, the drain is not done.
func TestADrainThatHasNotSeenAllPodsIsNotDone(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 40, 1<<20)
	for i := range s.Pods {
		s.Pods[i].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
	}
	s.Slow = 10 * time.Second
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
}

func TestADrainOfUsualPodsListsThemOnce(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 250, 8<<10)
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	if len(s.Pods) > 0 || len(s.Lists) != 1 {
		t.Errorf("%d pods are left after %d lists", len(s.Pods), len(s.Lists))
	}
}

// A StatefulSet creates a pod with the same name on another node. The drain must not evict this pod.
func TestADrainEvictsNoPodThatTookTheNameOfAnother(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ says, blocks string }{
		"as the registry says": {says: "the UID in the precondition (pod) does not match the UID in record (new). " +
			"The object might have been deleted and then recreated"},
		"as the storage says": {says: "Precondition failed: UID in precondition: pod, UID in object meta: new"},
		"another conflict": {says: "the object has been modified; please apply your changes to the latest version " +
			"and try again", blocks: "default/pod-a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, joinedNode("1"))
			w.runPod(t, "pod-a", false)
			evictions := 0
			w.onEviction(func(eviction *policyv1.Eviction) (bool, error) {
				evictions++
				if only := eviction.DeleteOptions; only == nil || only.GracePeriodSeconds != nil ||
					only.Preconditions == nil || only.Preconditions.UID == nil || *only.Preconditions.UID != "pod" {
					t.Errorf("the eviction is %+v", eviction)
				}
				return true, apierrors.NewConflict(corev1.Resource("pods"), "pod-a", errors.New(test.says))
			})
			i := leaving()
			want(t, w.Drain(t.Context(), i, "win-a", drainTimeout), "waits", contract.ReasonDraining)
			w.clock = w.clock.Add(drainTimeout + time.Second)
			outcome := w.Drain(t.Context(), i, "win-a", drainTimeout)
			if detail := outcome.Problem.Detail; !strings.Contains(detail, "eviction refused: ["+test.blocks) ||
				test.blocks == "" && strings.Contains(detail, "pod-a") || evictions != 2 {
				t.Errorf("after %d evictions, the detail is %s", evictions, detail)
			}
			if err := w.pods.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), "default",
				"pod-a"); err != nil {
				t.Fatal(err)
			}
			want(t, w.Drain(t.Context(), i, "win-a", drainTimeout), "done", "")
		})
	}
}

// of returns owner references that name a DaemonSet. The creator of a pod can write any owner.
func of(name string, uid types.UID) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: name, UID: uid,
		Controller: new(true)}}
}

func TestADrainLeavesWhatADaemonSetOrTheNodeItselfRuns(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 5, 1)
	s.Pods[0].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
	s.Pods[1].OwnerReferences = of("there", "uid-there")
	s.Pods[2].OwnerReferences = of("gone", "uid-gone")
	s.Pods[3].OwnerReferences = of("there", "uid-of-the-one-before")
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	var left []string
	for _, pod := range s.Pods {
		left = append(left, pod.Name)
	}
	if !slices.Equal(left, []string{"pod-10000", "pod-10001"}) {
		t.Errorf("the remaining pods are %v", left)
	}
}

// The creator of a pod can name any owner, because the API server only checks that the owner's name is not empty.
func TestA55_APodWhoseOwnerHasAnImpossibleNameDoesNotHoldADrain(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"there/status", "..", "%2e%2e", "There", strings.Repeat("a", 254)} {
		s, w := newPodServer(t, 3, 1)
		s.Pods[0].OwnerReferences = of(name, "uid-there")
		want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
		if len(s.Pods) > 0 {
			t.Errorf("with the owner %.20q, %d pods were not evicted", name, len(s.Pods))
		}
	}
}

func TestAPodWhoseOwnerIsNotToldIsNamedAndTheOthersGo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", false, of("there", "uid-there")...)
	w.runPod(t, "pod-b", false)
	refused := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "daemonsets"}, "there",
		errors.New("no"))
	w.pods.PrependReactor("get", "daemonsets", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, refused
	})
	i := leaving()
	want(t, w.Drain(t.Context(), i, "win-a", drainTimeout), "waits", contract.ReasonDraining)
	w.clock = w.clock.Add(drainTimeout + time.Second)
	outcome := w.Drain(t.Context(), i, "win-a", drainTimeout)
	want(t, outcome, "waits", contract.ReasonDrainBlocked)
	if says := outcome.Problem.Detail; !strings.Contains(says, "1 pod is left") ||
		!strings.Contains(says, "default/pod-a") || !strings.Contains(says, refused.Error()) {
		t.Errorf("the detail is %s", says)
	}
}

// If the operator can't read the owner of a pod, the drain must wait. The pod counts neither as evicted nor as a pod
// that may stay.
func TestAnAPIServerThatDoesNotTellWhoseAPodIsIsAWait(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joinedNode("1"))
	w.runPod(t, "pod-a", false, of("there", "uid-there")...)
	asked := 0
	w.pods.PrependReactor("get", "daemonsets", func(kubetesting.Action) (bool, runtime.Object, error) {
		asked++
		return true, nil, apierrors.NewServiceUnavailable("away")
	})
	i := leaving()
	want(t, w.Drain(t.Context(), i, "win-a", drainTimeout), "waits", contract.ReasonAPICallFailed)
	w.clock = w.clock.Add(drainTimeout + time.Second)
	want(t, w.Drain(t.Context(), i, "win-a", drainTimeout), "waits", contract.ReasonAPICallFailed)
	w.runPod(t, "pod-b", false)
	w.runPod(t, "pod-c", false, of("there", "uid-there")...)
	asked = 0
	outcome := w.Drain(t.Context(), i, "win-a", drainTimeout)
	want(t, outcome, "waits", contract.ReasonDrainBlocked)
	if says := outcome.Problem.Detail; asked != 1 || !strings.Contains(says, "1 pod is left") {
		t.Errorf("asked %d times, the detail is %s", asked, says)
	}
}
