package rollout

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Order says who goes first when not all can: nodes that serve nobody, then those with the fewest
// failures, then the oldest. Those that fail again and again, such as at a drain that is blocked, would
// otherwise take turns, and keep all others from a place.
type Order struct {
	// NotReady says that the node is not Ready, or that its host accepts no key: nobody is disrupted there.
	NotReady bool
	// Failures counts attempts that failed.
	Failures int32
	// Since is when the host came to the cluster.
	Since time.Time
	// Name decides between equals.
	Name string
}

// Compare is negative when o goes first.
func (o Order) Compare(other Order) int {
	first := func(order Order) int {
		if order.NotReady {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(first(o), first(other)), cmp.Compare(o.Failures, other.Failures),
		o.Since.Compare(other.Since), cmp.Compare(o.Name, other.Name))
}

// queued is a request that is to be decided.
type queued struct {
	Request
	// isCalled says that who asks was called, or need not be.
	isCalled bool
	// answered is closed when there is a Result. Until then only the round that took it touches it.
	answered chan struct{}
	Result
}

func (a *queued) answer(granted bool, err error) {
	a.Result = Result{granted, err}
	close(a.answered)
}

// round decides about everybody who asks, one after the other, by one live look that is shared by all
// who ask until it is taken. What is granted is in the list when the round is over.
func (g *Gate) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, decisionTimeout)
	defer cancel()
	batch := g.sift(ctx, g.take())
	if len(batch) == 0 {
		return
	}
	list, look, err := g.present(ctx)
	if err != nil {
		for _, one := range batch {
			one.answer(false, err)
		}
		return
	}
	// they came while the look was taken: what it allows they may, what it refuses they are asked
	// once more
	late := g.take()
	all := slices.Concat(batch, late)
	decided := decide(all, g.others(all), list.grants, look)
	if decided.isChanged {
		list.grants = decided.grants
		err = g.write(ctx, list)
	}
	g.tell(decided, late, err)
	for _, one := range decided.revoked {
		g.revoke(ctx, look.instance(one).DeepCopy(), one) // who was told may go by the look still
	}
}

// revoke makes a place void that nobody uses. One that can't be revoked is kept until it can, and one whose
// instance changed meanwhile until it is seen what became of it.
func (g *Gate) revoke(ctx context.Context, instance *v1alpha1.WindowsInstance, one Grant) bool {
	err := g.Return(ctx, instance)
	if err != nil && !apierrors.IsConflict(err) {
		logf.FromContext(ctx).Error(err, "an unused place in the rollout budget is kept", "node", one.Node)
	}
	return err == nil
}

// tell has everybody know what was decided, or that it could not be written.
func (g *Gate) tell(decided decision, late []*queued, err error) {
	for _, w := range decided.called {
		g.call(w)
	}
	for _, one := range decided.granted {
		g.Leave(one.Name)
		one.answer(err == nil, err)
	}
	for _, one := range decided.refused {
		g.wait(one.Request)
		if slices.Contains(late, one) {
			g.back([]*queued{one})
		} else {
			one.answer(false, nil)
		}
	}
}

// present reads the list of places and then the fleet. Of what the list has it leaves what counts.
func (g *Gate) present(ctx context.Context) (granted, Snapshot, error) {
	g.mu.Lock()
	g.freed = time.Time{} // the look shows it
	g.mu.Unlock()
	list, err := g.read(ctx)
	if err != nil {
		return granted{}, Snapshot{}, err
	}
	look, err := g.look(ctx, true)
	if err != nil {
		return granted{}, Snapshot{}, err
	}
	list.grants = slices.DeleteFunc(settle(list.grants, look), func(one Grant) bool {
		return one.isUnasked(look.Fleet.Now) && g.revoke(ctx, look.instance(one), one)
	})
	return list, look, nil
}

// sift answers those to whom the cache says no, which keeps hundreds who wait from having the whole
// fleet read. A cache that can't be read says nothing.
func (g *Gate) sift(ctx context.Context, batch []*queued) (left []*queued) {
	if !slices.ContainsFunc(batch, func(one *queued) bool { return !one.isCalled }) {
		return batch
	}
	look, err := g.look(ctx, false)
	for _, one := range batch {
		switch {
		case one.isCalled:
			left = append(left, one)
		case err != nil:
			one.answer(false, err)
		case one.Decide(look):
			left = append(left, one)
		default:
			g.wait(one.Request)
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

// wait notes who waits, and wants to be called: at once, if a place became free just before, which the
// look by which it got its no may not show.
func (g *Gate) wait(q Request) {
	if q.Wake == nil {
		return
	}
	g.mu.Lock()
	w := &waiter{order: q.Order, name: q.Name, node: q.Node, wake: q.Wake, asked: g.Now()}
	g.waiters[q.Name] = w
	isFreed := g.Now().Sub(g.freed) < callTimeout
	if isFreed {
		w.called, g.freed = g.Now(), time.Time{}
	}
	g.mu.Unlock()
	if isFreed {
		q.Wake()
	}
}

// Leave says that who asked by a name waits no more. A repeated call finds nothing to do.
func (g *Gate) Leave(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.waiters, name)
}

func (g *Gate) isCalled(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.waiters[name]
	return w != nil && !w.called.IsZero()
}

// Waiting counts who waits.
func (g *Gate) Waiting() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.waiters)
}

// Freed says that a place in the budget may be free: the first of those who wait and were not
// called yet is, or the next who has to wait.
func (g *Gate) Freed() {
	g.mu.Lock()
	g.freed = g.Now()
	g.mu.Unlock()
	for _, w := range g.others(nil) {
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
		known.called, g.freed = g.Now(), time.Time{} // it looks for itself
	}
	g.mu.Unlock()
	if first {
		w.wake()
	}
	return first
}

// others are those who wait and don't ask now, in their order. Who was called and did not come is
// not among them.
func (g *Gate) others(askers []*queued) []waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	asks := map[string]bool{}
	for _, one := range askers {
		asks[one.Name] = true
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
