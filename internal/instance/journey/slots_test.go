package journey_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/instance/journey"
)

func TestSlotsAreGivenInOrder(t *testing.T) {
	t.Parallel()
	var woken []types.UID
	slots := journey.NewSlots(1, func(id types.UID) { woken = append(woken, id) })
	for range 2 {
		if !slots.Acquire("a") {
			t.Fatal("the first host got no slot, or lost it with a second request")
		}
	}
	if slots.Acquire("b") || slots.Acquire("c") {
		t.Fatal("a second slot was assigned")
	}
	slots.Release("a")
	if !slices.Equal(woken, []types.UID{"b"}) {
		t.Fatalf("triggered %v, want the first waiting host", woken)
	}
	if slots.Acquire("c") {
		t.Fatal("a later host got the slot before an earlier one")
	}
	if !slots.Acquire("b") {
		t.Fatal("the first waiting host got no slot")
	}
}

func TestRaisingTheLimitWakesAsManyAsFit(t *testing.T) {
	t.Parallel()
	var woken []types.UID
	slots := journey.NewSlots(1, func(id types.UID) { woken = append(woken, id) })
	for _, id := range []types.UID{"a", "b", "c", "d"} {
		slots.Acquire(id)
	}
	slots.SetLimit(3)
	if !slices.Equal(woken, []types.UID{"b", "c"}) {
		t.Fatalf("woken %v", woken)
	}
}

// TestSlotsUnderRandomUse checks the invariants: there are never more holders than the limit, and no host that
// requests a slot repeatedly waits forever.
func TestSlotsUnderRandomUse(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const limit = 3
	slots := journey.NewSlots(limit, func(types.UID) {})
	held := map[types.UID]bool{}
	for range 5000 {
		id := types.UID(strconv.Itoa(random.IntN(12)))
		if random.IntN(3) == 0 {
			slots.Release(id)
			delete(held, id)
			continue
		}
		if slots.Acquire(id) {
			held[id] = true
		} else if held[id] {
			t.Fatalf("%s lost its slot with a second request", id)
		}
		if len(held) > limit || slots.Held() != len(held) {
			t.Fatalf("%d holders (%d counted), limit %d", len(held), slots.Held(), limit)
		}
	}
	for id := range held {
		slots.Release(id)
	}
	got := 0
	for i := range 12 {
		if slots.Acquire(types.UID(strconv.Itoa(i))) {
			got++
			slots.Release(types.UID(strconv.Itoa(i)))
		}
	}
	for i := range 12 {
		if slots.Acquire(types.UID(strconv.Itoa(i))) {
			got++
			slots.Release(types.UID(strconv.Itoa(i)))
		}
	}
	if got == 0 {
		t.Fatal("no host gets a slot any more")
	}
}
