package instance_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/pods/podstest"
)

// newPodServer serves pods of a size, and gives the client that the operator has for it.
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

// Whoever may create pods can give them a node's name, and 1.5 MB each.
func TestA55_LargePodsOnANodeCostADrainBoundedMemory(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 60, 1<<20)
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	if len(s.Pods) > 0 {
		t.Errorf("%d pods were not evicted", len(s.Pods))
	}
	if read := s.Largest.Load(); read != pods.MaxBytes+1 { // one more shows that it is too large
		t.Errorf("%d bytes were taken of too large an answer", read)
	}
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "done", "")
}

// So many large pods that the operator would be busy with them for as long as the API server lets a list
// go on: it ends the pass, and goes on with the next one.
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

// A pass that is ended has not seen all pods.
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

func TestADrainLeavesWhatADaemonSetOrTheNodeItselfRuns(t *testing.T) {
	t.Parallel()
	controller := true
	s, w := newPodServer(t, 4, 1)
	s.Pods[0].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
	s.Pods[1].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "there", Controller: &controller}}
	s.Pods[2].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "gone", Controller: &controller}}
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	var left []string
	for _, pod := range s.Pods {
		left = append(left, pod.Name)
	}
	if !slices.Equal(left, []string{"pod-10000", "pod-10001"}) {
		t.Errorf("left are %v", left)
	}
}
