package source

import (
	"sync"
	"time"
)

// absenceGrace is how long the ConfigMap may be absent before its hosts leave. `kubectl replace
// --force` deletes and creates it within seconds; a list that is meant to be gone can be emptied.
const absenceGrace = time.Minute

// absence is since when the ConfigMap is absent. It is not kept over a restart of the operator,
// which begins the grace anew.
type absence struct {
	mu    sync.Mutex
	since time.Time
}

// left is how much of the grace is left, 0 when it is over. began says that it begins now.
func (a *absence) left(now time.Time) (left time.Duration, began bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if began = a.since.IsZero() || a.since.After(now); began {
		a.since = now
	}
	return max(0, absenceGrace-now.Sub(a.since)), began
}

// end notes that the ConfigMap is there.
func (a *absence) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.since = time.Time{}
}
