package journey_test

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/instance/journey"
)

func host(name string) types.NamespacedName { return types.NamespacedName{Name: name} }

func TestSlotsAreGivenInOrder(t *testing.T) {
	t.Parallel()
	var woken []types.NamespacedName
	slots := journey.NewSlots(1, func(key types.NamespacedName) { woken = append(woken, key) })
	for range 2 {
		if !slots.Acquire(host("a")) {
			t.Fatal("the first host got no slot, or lost it with a second request")
		}
	}
	if slots.Acquire(host("b")) || slots.Acquire(host("c")) {
		t.Fatal("a second slot was assigned")
	}
	slots.Release(host("a"))
	if !slices.Equal(woken, []types.NamespacedName{host("b")}) {
		t.Fatalf("triggered %v, want the first waiting host", woken)
	}
	if slots.Acquire(host("c")) {
		t.Fatal("a later host got the slot before an earlier one")
	}
	if !slots.Acquire(host("b")) {
		t.Fatal("the first waiting host got no slot")
	}
}

func TestRaisingTheLimitWakesAsManyAsFit(t *testing.T) {
	t.Parallel()
	var woken []types.NamespacedName
	slots := journey.NewSlots(1, func(key types.NamespacedName) { woken = append(woken, key) })
	for _, key := range []types.NamespacedName{host("a"), host("b"), host("c"), host("d")} {
		slots.Acquire(key)
	}
	slots.SetLimit(3)
	if !slices.Equal(woken, []types.NamespacedName{host("b"), host("c")}) {
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
	slots := journey.NewSlots(limit, func(types.NamespacedName) {})
	held := map[types.NamespacedName]bool{}
	for range 5000 {
		key := host(strconv.Itoa(random.IntN(12)))
		if random.IntN(3) == 0 {
			slots.Release(key)
			delete(held, key)
			continue
		}
		if slots.Acquire(key) {
			held[key] = true
		} else if held[key] {
			t.Fatalf("%s lost its slot with a second request", key)
		}
		if len(held) > limit || slots.Held() != len(held) {
			t.Fatalf("%d holders (%d counted), limit %d", len(held), slots.Held(), limit)
		}
	}
	for key := range held {
		slots.Release(key)
	}
	got := 0
	for i := range 12 {
		if slots.Acquire(host(strconv.Itoa(i))) {
			got++
			slots.Release(host(strconv.Itoa(i)))
		}
	}
	for i := range 12 {
		if slots.Acquire(host(strconv.Itoa(i))) {
			got++
			slots.Release(host(strconv.Itoa(i)))
		}
	}
	if got == 0 {
		t.Fatal("no host gets a slot any more")
	}
}
