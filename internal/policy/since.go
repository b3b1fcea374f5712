package policy

import "time"

// Witnessed is how long this operator must itself have seen a Node not Ready before it acts on that.
const Witnessed = time.Minute

// Since is when a condition began. It is zero while the condition doesn't hold. To compute a duration, subtract its
// times from a time of the same clock that has a monotonic reading. Then a step of the wall clock has no effect.
type Since struct {
	// Began is the best known start. Seen is when this operator first saw the condition.
	Began, Seen time.Time
}

// IsZero reports that the condition doesn't hold.
func (s Since) IsZero() bool { return s.Seen.IsZero() }

// Left returns how much time is left until the condition has lasted for limit. It is 0 or less if the limit has
// passed. In addition, this operator must itself have seen the condition for the duration least, or for limit if that
// is shorter. Began alone is not sufficient: it may come from a wrong clock or a restored etcd, and daemons could not
// report while no operator was leading.
func (s Since) Left(limit, least time.Duration, now time.Time) time.Duration {
	return max(limit-now.Sub(s.Began), min(limit, least)-now.Sub(s.Seen))
}

// IsOut reports whether a node that isn't Ready counts as out of service. A node that isn't Ready for a few
// seconds still has all its pods.
func (s Since) IsOut(after time.Duration, now time.Time) bool {
	return !s.IsZero() && s.Left(after, Witnessed, now) <= 0
}
