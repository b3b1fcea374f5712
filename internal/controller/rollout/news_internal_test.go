package rollout

import (
	"reflect"
	"testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// A Ready node of a host that leaves without a slot counts against the budget until its removal begins. So only this
// change of the phase may let another host have a slot.
func TestOnlyTheBeginOfARemovalIsAChangeOfThePhaseThatNeedsADecision(t *testing.T) {
	news := func(phase v1alpha1.Phase) []any {
		return instanceNews(&v1alpha1.WindowsInstance{Status: v1alpha1.WindowsInstanceStatus{Phase: phase}})
	}
	before := news(v1alpha1.PhaseBootstrapping)
	if reflect.DeepEqual(before, news(v1alpha1.PhaseRemoving)) {
		t.Error("no decision after the begin of a removal")
	}
	if !reflect.DeepEqual(before, news(v1alpha1.PhaseAdopting)) {
		t.Error("a decision after a phase of a join")
	}
}
