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
	"github.com/windows-nodes/wmco/internal/rollout"
)

// The object has the budget and the windows. Without them, all nodes would be taken to the defaults at once.
func TestA80_BudgetAndWindowsOfSettingsThatAreDeletedStayInForce(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Spec.Rollout.MaxUnavailable = new(intstr.FromInt32(0))
	config.Spec.Rollout.MaintenanceWindows = []v1alpha1.MaintenanceWindow{{Start: "30 2 29 2 *",
		Duration: metav1.Duration{Duration: time.Hour}}}
	data, err := facts.Memory(config, nil)
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.MemorySecret}, Data: data}
	p := newPlane(t, append(serving("a"), secret)...)
	ask := disrupt("a")
	decide, closed := ask.Decide, ""
	ask.Decide = func(look rollout.Snapshot) bool { closed = look.Closed; return decide(look) }
	granted, err := newGate(t, p, p, p, nil).Acquire(t.Context(), ask)
	if err != nil || granted || closed == "" {
		t.Errorf("the node may be disrupted: %t, the windows are closed: %q, %v", granted, closed, err)
	}
}
