package runtimeclass

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/pods/podstest"
)

func TestA72_LargePodsOfATenantCostALookBoundedMemory(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a", "10.0.20348"))
	f.pods = podstest.New(t, 30, 1<<20)
	f.begin(t)
	f.reconcile(t)
	f.settings(t, v1alpha1.RuntimeClassesRemoved)
	f.reconcile(t)
	if read := f.pods.Largest.Load(); read != pods.MaxBytes+1 { // one more shows that it is too large
		t.Errorf("%d bytes were taken of one answer", read)
	}
	if got := f.classes(t); len(got) != 0 {
		t.Errorf("classes: %v", got)
	}
}

// A class stays while a pod may use it that was not read.
func TestA72_AClassStaysThatPodsMayUse(t *testing.T) {
	t.Parallel()
	f := newFixture(t, node("a", "10.0.20348"))
	f.pods = podstest.New(t, 30, 1<<20)
	f.begin(t)
	f.reconcile(t)
	f.settings(t, v1alpha1.RuntimeClassesRemoved)
	f.pods.Slow = 10 * time.Second
	if after := f.reconcile(t); after != retryInUse {
		t.Errorf("looks again after %s", after)
	}
	if got := f.classes(t); !slices.Equal(got, []string{"windows2022"}) {
		t.Errorf("classes: %v", got)
	}
	if len(f.events) != 1 || !strings.Contains(f.events[0], string(contract.ReasonRuntimeClassInUse)) ||
		!strings.Contains(f.events[0], "not all pods could be read") {
		t.Errorf("events: %q", f.events)
	}
}

func (f *fixture) settings(t *testing.T, classes v1alpha1.RuntimeClasses) {
	t.Helper()
	if err := f.api.Create(t.Context(), settings(classes)); err != nil {
		t.Fatal(err)
	}
}
