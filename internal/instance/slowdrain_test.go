package instance_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	policyv1client "k8s.io/client-go/kubernetes/typed/policy/v1"
	kubetesting "k8s.io/client-go/testing"
)

// evictor is an API server with a slow webhook that allows or refuses some evictions.
type evictor struct {
	kubernetes.Interface
	policyv1client.PolicyV1Interface
	policyv1client.EvictionInterface
	left    []corev1.Pod
	slow    map[string]time.Duration
	refused map[string]bool
}

func (e *evictor) PolicyV1() policyv1client.PolicyV1Interface        { return e }
func (e *evictor) Evictions(string) policyv1client.EvictionInterface { return e }
func (e *evictor) Evict(ctx context.Context, eviction *policyv1.Eviction) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(e.slow[eviction.Name]):
	}
	if e.refused[eviction.Name] {
		return apierrors.NewInternalError(fmt.Errorf("calling the webhook: context deadline exceeded"))
	}
	e.left = slices.DeleteFunc(e.left, func(p corev1.Pod) bool { return p.Name == eviction.Name })
	return nil
}

// slowly returns a world with this number of pods, whose evictions take long. Call it under synctest.
func slowly(t *testing.T, count int) (*world, *evictor) {
	t.Helper()
	w := newWorld(t, joinedNode("1"))
	e := &evictor{Interface: w.pods, slow: map[string]time.Duration{}, refused: map[string]bool{}}
	for i := range count {
		e.left = append(e.left, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: fmt.Sprintf("pod-%02d", i+1)}, Spec: corev1.PodSpec{NodeName: "win-a"}})
	}
	w.pods.PrependReactor("list", "pods", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.PodList{Items: slices.Clone(e.left)}, nil
	})
	w.Pods, w.Now = e, time.Now
	return w, e
}

// If a webhook does not answer within its time limit, the API server refuses the eviction. The pods after it must be
// evicted all the same.
func TestPodsBehindThoseThatAreSlowlyRefusedAreEvicted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, e := slowly(t, 20)
		for _, pod := range e.left[:12] {
			e.slow[pod.Name], e.refused[pod.Name] = 10*time.Second, true
		}
		i := leaving()
		for range 3 {
			w.Drain(t.Context(), i, "win-a", drainTimeout)
		}
		if len(e.left) != 12 {
			t.Errorf("%d pods are left, the last is %s", len(e.left), e.left[len(e.left)-1].Name)
		}
	})
}

// A webhook with the failure policy Ignore delays each eviction until its time limit. The drain must still finish.
func TestEvictionsThatAreAllowedSlowlyComeToTheirEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, e := slowly(t, 4)
		for _, pod := range e.left {
			e.slow[pod.Name] = 30 * time.Second
		}
		i := leaving()
		for range 5 {
			w.Drain(t.Context(), i, "win-a", drainTimeout)
		}
		want(t, w.Drain(t.Context(), i, "win-a", drainTimeout), "done", "")
	})
}

func TestAnEvictionThatIsNeverAnsweredHoldsADrainForABoundedTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, e := slowly(t, 20)
		for _, pod := range e.left[:10] {
			e.slow[pod.Name] = 24 * time.Hour
		}
		i := leaving()
		for pass := range 6 {
			began := time.Now()
			w.Drain(t.Context(), i, "win-a", drainTimeout)
			if took := time.Since(began); took > 80*time.Second {
				t.Errorf("pass %d took %s", pass, took)
			}
		}
		if len(e.left) != 10 {
			t.Errorf("%d pods are left", len(e.left))
		}
	})
}
