package publish

import (
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// lateAfter is how long something may not be as it must be until that is told: another operator's finalizers go by
// themselves, and so does an API server's trouble.
const lateAfter = time.Minute

// late is since when something is not as it must be; zero while it is.
type late struct{ since time.Time }

// lasts notes how the last try ended. It answers what must be told, once tries have failed for too long.
func (l *late) lasts(now time.Time, err error, reason contract.Reason) *contract.Problem {
	switch {
	case err == nil:
		l.since = time.Time{}
		return nil
	case l.since.IsZero():
		l.since = now
	}
	if now.Sub(l.since) < lateAfter {
		return nil
	}
	return contract.NewProblem(reason, "%v", err)
}
