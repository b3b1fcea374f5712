package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// serverCA manages the CA that the daemon itself trusts for the API server.
type serverCA struct {
	trust     func(ctx context.Context, ca []byte, next bool) (settled bool, err error)
	clock     clock.Clock
	intervals Intervals
	// revision is the last revision that was checked. `pending` is the CA of this revision. Once the daemon trusts no
	// other CA, `pending` is nil. `again` is the time of the next attempt, and `pause` is the pause before that
	// attempt.
	revision string
	pending  []byte
	again    time.Time
	pause    time.Duration
}

// trustRevision makes the daemon trust the CA of the candidate c as soon as c was read, even if c isn't applied or is
// rolled back later. Otherwise the daemon might be unable to verify the API server, and would not receive the next
// revision. If c is nil, trustRevision uses the CA of the host's revision.
func (s *serverCA) trustRevision(ctx context.Context, c *state.Revision, host state.Revision) {
	if c != nil {
		host = *c
	}
	if host.Name != s.revision {
		s.revision, s.pending, s.again, s.pause = host.Name, []byte(host.Manifest.BootstrapCA()), time.Time{}, 0
	}
	if len(s.pending) == 0 || s.trust == nil || s.clock.Now().Before(s.again) {
		return
	}
	settled, err := s.trust(ctx, s.pending, c != nil)
	if err != nil {
		logr.FromContextOrDiscard(ctx).Info("the API server is not verified by another CA yet", "revision", s.revision,
			"detail", err.Error())
	}
	if err == nil && settled {
		s.pending = nil
		return
	}
	s.pause = loop.Grow(s.pause, 2, s.intervals.Failing, s.intervals.RetryLimit)
	s.again = s.clock.Now().Add(s.pause)
}
