package rollout

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// Order says who goes first when not all can: nodes that serve nobody, then those with the most
// failures, then the oldest.
type Order struct {
	// Down says that the node is not Ready.
	Down bool
	// Failures counts attempts that failed.
	Failures int32
	// Since is when the host came to the cluster.
	Since time.Time
	// Name decides between equals.
	Name string
}

// Compare is negative when o goes first.
func (o Order) Compare(other Order) int {
	down := func(order Order) int {
		if order.Down {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(down(o), down(other)), cmp.Compare(other.Failures, o.Failures),
		o.Since.Compare(other.Since), cmp.Compare(o.Name, other.Name))
}

// asked is a question that is to be decided.
type asked struct {
	Question
	// act does it within the bounds of who asked.
	act func() error
	// answered is closed when acted and err say what came of it. Until then only the round that
	// took it touches it.
	answered chan struct{}
	acted    bool
	err      error
}

func (a *asked) answer(acted bool, err error) {
	a.acted, a.err = acted, err
	close(a.answered)
}

// round decides about everybody who asks, one after the other. One live look is shared by all who
// ask until it is taken; every grant changes it. What is granted is done when the round is over:
// the next one is decided by what is in the API server then.
func (g *Gate) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	batch := g.sift(ctx, g.take())
	if len(batch) == 0 {
		return
	}
	look, err := g.look(ctx, true)
	if err != nil {
		for _, one := range batch {
			one.answer(false, err)
		}
		return
	}
	// they came while the look was taken: what it allows they may, what it refuses they are asked
	// once more
	late := g.take()
	waiting := g.others(batch, late)
	isLate := map[*asked]bool{}
	for _, one := range late {
		isLate[one] = true
	}
	all := append(slices.Clone(batch), late...)
	slices.SortStableFunc(all, func(a, b *asked) int { return a.Order.Compare(b.Order) })
	var again []*asked
	var acts errgroup.Group
	acts.SetLimit(atOnce)
	for _, one := range all {
		for len(waiting) > 0 && waiting[0].order.Compare(one.Order) < 0 {
			g.reserve(waiting[0], &look)
			waiting = waiting[1:]
		}
		switch {
		case g.decide(one, &look, &acts):
		case isLate[one]:
			again = append(again, one)
		default:
			one.answer(false, nil)
		}
	}
	for len(waiting) > 0 && g.reserve(waiting[0], &look) { // there is room for more than those who asked
		waiting = waiting[1:]
	}
	g.back(again)
	if acts.Wait() != nil {
		g.Freed() // its place was kept from those who asked with it
	}
}

// atOnce is how many of those who were granted a place write that down at the same time.
const atOnce = 64

// decide has one question decided, and what it allows done: at once if more than a place depends on
// it, else beside the others. It is false, and nothing is answered, when the answer is no. The
// place of one that is done beside others, and fails, stays taken for this round.
func (g *Gate) decide(one *asked, look *Look, acts *errgroup.Group) bool {
	if !one.Decide(*look) {
		if one.Wake != nil {
			g.wait(one.Question)
		}
		return false
	}
	if one.Granted != nil {
		err := one.act()
		if err == nil {
			one.Granted(*look)
			g.grant(one, look)
		}
		one.answer(err == nil, err)
		return true
	}
	g.grant(one, look)
	acts.Go(func() error {
		err := one.act()
		one.answer(err == nil, err)
		return err
	})
	return true
}

// grant notes that one has its place.
func (g *Gate) grant(one *asked, look *Look) {
	look.Fleet.Disturb(one.Node)
	g.Leave(one.Name)
}

// sift answers those to whom the cache says no, which keeps hundreds who wait from having the whole
// fleet read. A cache that can't be read says nothing.
func (g *Gate) sift(ctx context.Context, batch []*asked) (left []*asked) {
	if !slices.ContainsFunc(batch, func(one *asked) bool { return !one.Fresh }) {
		return batch
	}
	look, err := g.look(ctx, false)
	for _, one := range batch {
		switch {
		case one.Fresh:
			left = append(left, one)
		case err != nil:
			one.answer(false, err)
		case one.Decide(look):
			left = append(left, one)
		default:
			if one.Wake != nil {
				g.wait(one.Question)
			}
			one.answer(false, nil)
		}
	}
	return left
}

// waiter is somebody to whom the answer was no, and who is called when there is a place.
type waiter struct {
	order      Order
	name, node string
	wake       func()
	// asked is when it last asked; called is when a place was first held for it.
	asked, called time.Time
}

// Times after which a waiter is not reckoned with any more: it asks at least once a minute, and
// comes at once when it is called.
const (
	waitTimeout = 3 * time.Minute
	callTimeout = 10 * time.Second
)

// wait notes who waits.
func (g *Gate) wait(q Question) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.waiters[q.Name] = &waiter{order: q.Order, name: q.Name, node: q.Node, wake: q.Wake, asked: g.Now()}
}

// Leave says that who asked by a name waits no more. A repeated call finds nothing to do.
func (g *Gate) Leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiters, name)
}

// Waiting counts who waits.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiters)
}

// Freed says that a place in the budget may be free: the first of those who wait and were not
// called yet is.
func (g *Gate) Freed() {
	for _, w := range g.others(nil, nil) {
		if g.call(w) {
			return
		}
	}
}

// call wakes a waiter, once. It is false for one that was called before.
func (g *Gate) call(w waiter) bool {
	g.mu.Lock()
	known := g.waiters[w.name]
	first := known != nil && known.called.IsZero()
	if first {
		known.called = g.Now()
	}
	g.mu.Unlock()
	if first {
		w.wake()
	}
	return first
}

// others are those who wait and don't ask now, in their order. Who was called and did not come is
// not among them.
func (g *Gate) others(askers ...[]*asked) []waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	asks := map[string]bool{}
	for _, some := range askers {
		for _, one := range some {
			asks[one.Name] = true
		}
	}
	var list []waiter
	now := g.Now()
	for name, w := range g.waiters {
		isGone := now.Sub(w.asked) > waitTimeout || !w.called.IsZero() && now.Sub(w.called) > callTimeout
		if !asks[name] && !isGone {
			list = append(list, *w)
		}
	}
	slices.SortFunc(list, func(a, b waiter) int { return a.order.Compare(b.order) })
	return list
}

// reserve holds a place for one who was there before, and calls it. It is false when there is none
// for it.
func (g *Gate) reserve(w waiter, look *Look) bool {
	if !look.MayDisrupt(w.node).Allowed {
		return false
	}
	look.Fleet.Disturb(w.node)
	g.call(w)
	return true
}
