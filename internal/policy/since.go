package policy

import "time"

// Witnessed is how long this operator itself must have seen that a Node is not Ready, before the operator acts on this.
const Witnessed = time.Minute

// A Since is when a state began. It is zero while there is no such state. To compute a duration, subtract Began or Seen
// from a time of this process's clock. Go then uses the monotonic clock, which steps of the wall clock don't affect.
type Since struct {
	// Began is the best known start of the state. Seen is when this operator first saw the state.
	Began, Seen time.Time
}

// IsZero reports that there is no such state.
func (s Since) IsZero() bool { return s.Seen.IsZero() }

// Left returns how much time is left until the state has lasted for the time `limit`, and this operator itself has seen
// it for the time `least`. If `limit` is shorter than `least`, `limit` applies to both. If no time is left, the result
// is 0 or less. Began alone is not sufficient: it may come from a wrong clock or a restored etcd, and daemons could not
// report anything while no operator was leading.
func (s Since) Left(limit, least time.Duration, now time.Time) time.Duration {
	return max(limit-now.Sub(s.Began), min(limit, least)-now.Sub(s.Seen))
}

// IsOut reports whether a node that isn't Ready counts as out of service. A node that hasn't been Ready for only a few
// seconds still runs all its pods.
func (s Since) IsOut(after time.Duration, now time.Time) bool {
	return !s.IsZero() && s.Left(after, Witnessed, now) <= 0
}
