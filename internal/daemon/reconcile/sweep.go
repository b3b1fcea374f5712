package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// The daemon removes unused payload when a new revision was verified, and otherwise at most once per sweepPause. A blob
// that no known manifest lists may belong to a future revision. So the daemon keeps such a blob for stagedLife.
const (
	sweepPause = time.Hour
	stagedLife = 24 * time.Hour
)

type sweeper struct {
	files winos.Files
	state *state.File
	store *payload.Store
	clock clock.Clock
	// `now` returns the host's time. The file times of blobs are compared with this time.
	now func() time.Time
	// `swept` is the time of the last sweep, and `revision` is the revision that was verified at that time.
	swept    time.Time
	revision string
}

// sweep removes blobs that no revision needs. It keeps the blobs of the current revision, of the previous revision, and
// of a revision that is being fetched or staged. The previous revision's blobs stay so that the host can roll back
// without the operator.
func (s *sweeper) sweep(ctx context.Context, stager *payload.Stager) {
	now := s.clock.Now()
	if !s.state.Verified || s.revision == s.state.Revision.Name && now.Sub(s.swept) < sweepPause {
		return
	}
	blobs := map[string]bool{}
	if stager != nil {
		keeps, known := stager.Keeps()
		if !known {
			return
		}
		blobs = keeps
	}
	s.swept, s.revision = now, s.state.Revision.Name
	log := logr.FromContextOrDiscard(ctx)
	for _, f := range s.state.Manifest.Files {
		blobs[f.Digest] = true
	}
	if before := s.state.Before; before != nil {
		for _, f := range before.Manifest.Files {
			blobs[f.Digest] = true
		}
	}
	removed, err := s.store.Sweep(blobs, s.now().Add(-stagedLife))
	if err != nil {
		log.Info("unused payload can't be removed", "detail", err.Error())
	}
	if removed > 0 {
		log.Info("removed unused payload", "blobs", removed)
	}
}
