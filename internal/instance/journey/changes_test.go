package journey

import (
	"strconv"
	"testing"
)

func TestTwoRevisionsAreComparedOnce(t *testing.T) {
	t.Parallel()
	c, asked := &changes{}, 0
	of := func(from, to string, known, forGood bool) {
		t.Helper()
		one, ok := c.of(from, to, func() (change, bool, bool) {
			asked++
			return change{drains: known}, known, forGood
		})
		if ok != known || one.drains != known {
			t.Errorf("from %s to %s is %+v, %v", from, to, one, ok)
		}
	}
	for _, step := range []struct {
		from, to       string
		known, forGood bool
		asked          int
	}{
		{"1", "2", false, false, 1},
		{"1", "2", true, false, 2}, // a manifest that is not what its name says may be put right
		{"1", "2", true, true, 3},
		{"1", "2", true, true, 3},
		{"2", "1", true, true, 4},
		{"12", "", true, true, 5},
	} {
		if of(step.from, step.to, step.known, step.forGood); asked != step.asked {
			t.Fatalf("%+v: asked %d times", step, asked)
		}
	}
	for i := range 10 * mostChanges {
		of(strconv.Itoa(i), "", true, true)
	}
	if len(c.all) > mostChanges {
		t.Errorf("%d are remembered", len(c.all))
	}
}
