package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/state"
)

// serverCA is the CA of the API server, as far as the daemon itself goes.
type serverCA struct {
	trust     func(ctx context.Context, ca []byte, next bool) (settled bool, err error)
	clock     clock.Clock
	intervals Intervals
	// revision is the revision that was looked at last, and pending its CA until the API server is verified by that
	// alone. The next attempt is due at again, after pause.
	revision string
	pending  []byte
	again    time.Time
	pause    time.Duration
}

// trustRevision trusts the CA of a revision as soon as it was read, whether the host is ever brought to it or goes back
// from it: a daemon that can't verify the API server would not hear of the next. Without one, the host's counts.
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
	s.pause = grow(s.pause, 2, s.intervals.Failing, s.intervals.RetryLimit)
	s.again = s.clock.Now().Add(s.pause)
}
