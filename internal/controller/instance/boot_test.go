package instance

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/test/hosttest"
)

func TestA03_AMachineThatBootsForTheFirstTimeIsNoWarning(t *testing.T) {
	t.Parallel()
	objects := listed(1)
	i := objects[0].(*v1alpha1.WindowsInstance)
	i.Spec.Source.Kind = v1alpha1.SourceMachine
	i.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := newRig(t, objects...)
	warned := func() bool {
		return slices.ContainsFunc(r.events, func(e told) bool { return strings.Contains(e.note, "W201") })
	}
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	for r.clock.Before(i.CreationTimestamp.Add(policy.FirstBoot)) {
		r.reconcile(t, 1)
		if got := r.get(t, 1); warned() || got.Status.Reason() != string(contract.ReasonUnreachable) {
			t.Fatalf("after %s: events %+v; status %+v", r.clock.Sub(i.CreationTimestamp.Time), r.events, got.Status)
		}
		r.clock = r.clock.Add(time.Minute)
	}
	r.clock = r.clock.Add(5 * time.Minute)
	r.reconcile(t, 1)
	if !warned() {
		t.Errorf("the machine should have booted by now, but no event says so: %+v", r.events)
	}
}
