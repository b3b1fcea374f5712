package rollout_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	facts "github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// If a user deletes the settings, their budget and windows must still apply. Otherwise, all hosts would be disrupted at
// once.
func TestA80_BudgetAndWindowsOfSettingsThatAreDeletedStayInForce(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		set  func(*v1alpha1.RolloutSpec)
		says contractReason
	}{
		"the budget": {func(s *v1alpha1.RolloutSpec) { s.MaxUnavailable = new(intstr.FromInt32(0)) }, ""},
		"the windows": {func(s *v1alpha1.RolloutSpec) {
			s.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "30 2 29 2 *",
				Duration: metav1.Duration{Duration: time.Hour}}}
		}, contract.ReasonMaintenanceWindowClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
			test.set(&config.Spec.Rollout)
			data, err := facts.Memory(config, nil)
			if err != nil {
				t.Fatal(err)
			}
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.MemorySecret},
				Data: data}
			p := newPlane(t, append(asking("a"), secret)...)
			r := newRollout(t, p)
			decide(t, r)
			if verdict, known := r.Verdict(p.instance(t, "a")); !known || verdict.Allowed || verdict.Reason != test.says {
				t.Errorf("%+v, known %t", verdict, known)
			}
		})
	}
}

type contractReason = contract.Reason
