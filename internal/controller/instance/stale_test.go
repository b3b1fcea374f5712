package instance

import (
	"maps"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// An operator that took over has a cache that may lag behind what the one before wrote. A place in
// the rollout budget that only such a cache shows was given back, and may be another's.
func TestAPlaceThatOnlyAStaleCacheShowsDisturbsNobody(t *testing.T) {
	t.Parallel()
	since := func(r *rig, step v1alpha1.Step) v1alpha1.Progress {
		return v1alpha1.Progress{Step: step, Since: journey.Seconds(r.clock)}
	}
	for name, shown := range map[string]func(r *rig, status *v1alpha1.WindowsInstanceStatus){
		"that drains for an upgrade": func(r *rig, status *v1alpha1.WindowsInstanceStatus) {
			status.Phase, status.Disruption.Purpose = v1alpha1.PhaseUpdating, v1alpha1.DisruptionUpdate
			status.Update = &v1alpha1.Update{Revision: second, From: first, Drains: true,
				Progress: since(r, v1alpha1.StepDraining)}
		},
		"that drains for a reboot": func(r *rig, status *v1alpha1.WindowsInstanceStatus) {
			status.Phase, status.Disruption.Purpose = v1alpha1.PhaseRebooting, v1alpha1.DisruptionReboot
			status.Reboot = &v1alpha1.Reboot{Reason: v1alpha1.RebootRequested,
				Progress: since(r, v1alpha1.StepDraining)}
		},
		"that reboots": func(r *rig, status *v1alpha1.WindowsInstanceStatus) {
			status.Phase, status.Disruption.Purpose = v1alpha1.PhaseRebooting, v1alpha1.DisruptionReboot
			status.Reboot = &v1alpha1.Reboot{Reason: v1alpha1.RebootRequested, BootID: "boot-1",
				Progress: since(r, v1alpha1.StepSwitching)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := steady(t, 1)
			r.settings(t, func(c *v1alpha1.WindowsMachineConfig) {
				c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0))
			})
			r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
			blocked := false
			r.evicts(&blocked)
			r.pod(t, 1, "web")
			before := r.node(t, 1)
			r.restart(t)
			r.stale = r.get(t, 1)
			r.stale.Status.Disruption = &v1alpha1.Disruption{Since: journey.Seconds(r.clock)}
			shown(r, &r.stale.Status)
			for range 3 {
				if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key(1)}); err != nil {
					t.Fatal(err)
				}
			}
			after := r.node(t, 1)
			if after.Spec.Unschedulable || !maps.Equal(before.Annotations, after.Annotations) {
				t.Errorf("the node is cordoned: %v, annotations %v, before %v", after.Spec.Unschedulable,
					after.Annotations, before.Annotations)
			}
			if pods, err := r.pods.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{
				FieldSelector: "spec.nodeName=" + before.Name}); err != nil || len(pods.Items) != 1 {
				t.Errorf("pods were evicted: %v %v", pods, err)
			}
			if place := r.get(t, 1).Status.Disruption; place != nil {
				t.Errorf("it has a place: %+v", place)
			}
		})
	}
}

// A pause that ended is still shown by a cache that lags behind. It takes no place away.
func TestAPauseThatOnlyAStaleCacheShowsKeepsThePlace(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	blocked := true
	r.evicts(&blocked)
	r.pod(t, 1, "web")
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.reconcile(t, 1)
	r.expect(t, 1, v1alpha1.PhaseRebooting, v1alpha1.StepDraining, contract.ReasonDraining)
	r.stale = r.get(t, 1)
	r.stale.Spec.Paused = true
	r.reconcile(t, 1)
	if r.get(t, 1).Status.Disruption == nil {
		t.Error("the place is given back")
	}
}

// Quiet nodes, and those that ask for a place, cost no reads past the cache.
func TestOnlyAHostWithAPlaceIsReadPastTheCache(t *testing.T) {
	t.Parallel()
	r := steady(t, 1)
	r.settings(t, func(c *v1alpha1.WindowsMachineConfig) { c.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0)) })
	r.annotate(t, 1, contract.RebootRequestedAnnotation, "")
	r.restart(t)
	r.parts.Live = nil // whoever reads there panics
	for range 3 {
		r.reconcile(t, 1)
	}
	r.expect(t, 1, v1alpha1.PhaseReady, v1alpha1.StepWaiting, contract.ReasonRevisionPending)
}
