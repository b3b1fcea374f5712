package publish

import (
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// lateAfter is how long a failure may last before it is reported. A foreign finalizer, or trouble of the API server,
// often ends by itself.
const lateAfter = time.Minute

// late holds the time since when an operation fails. It is zero while the operation succeeds.
type late struct{ since time.Time }

// lasts records how the last try ended. It returns a problem if all tries failed for lateAfter.
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
