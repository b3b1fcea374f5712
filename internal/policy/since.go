package policy

import "time"

// Witnessed is how long this operator must itself have seen a Node not Ready before it acts on that.
const Witnessed = time.Minute

// Since is since when something is the case; zero while it is not. Subtract its times only from a time of the same
// clock that has its monotonic reading: then no step of the wall clock counts.
type Since struct {
	// Began is when it began, as far as anybody knows; Seen is when this operator first saw it.
	Began, Seen time.Time
}

// IsZero reports whether nothing is the case.
func (s Since) IsZero() bool { return s.Seen.IsZero() }

// Left is how much time is left to what may last for a limit; none when it is late. It is not late before this operator
// has seen it for at least least, or for the limit if that is shorter: the date of its begin may come from a clock that
// is wrong or from a restored etcd, and while no operator led, daemons could not report.
func (s Since) Left(limit, least time.Duration, now time.Time) time.Duration {
	return max(limit-now.Sub(s.Began), min(limit, least)-now.Sub(s.Seen))
}

// IsOut reports whether a node that is not Ready counts as out of service. A node that is not Ready for seconds only is
// back soon, with all its pods.
func (s Since) IsOut(after time.Duration, now time.Time) bool {
	return !s.IsZero() && s.Left(after, Witnessed, now) <= 0
}
