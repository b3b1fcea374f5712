package instance

import (
	"testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// A change of the spec ends all pauses once. The new generation must be written to the status at once, even if nothing
// else changes, because a user may wait for observedGeneration.
func TestAChangeOfTheSpecIsSeenOnceAndSavedAtOnce(t *testing.T) {
	t.Parallel()
	r := joined(t)
	i := r.get(t, 1)
	kept := &memory{}
	c := newReconciliation(r.Reconciler, i, nil, kept)
	c.observe()
	if kept.isHurried || !c.mayPostpone() {
		t.Fatal("an unchanged spec counts as changed")
	}
	i.Generation++
	c.observe()
	if !kept.isHurried || observed(&i.Status) != i.Generation || c.mayPostpone() {
		t.Errorf("hurried %v, observed generation %d of %d, postponed %v", kept.isHurried, observed(&i.Status), i.Generation,
			c.mayPostpone())
	}
	kept.isHurried = false
	c.observe()
	if kept.isHurried {
		t.Errorf("the same change is seen twice: %s", condition(i, v1alpha1.ConditionProgressing))
	}
}
