package reconcile

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// The daemon removes unused payload when another revision is verified, and otherwise at most once per sweepPause. A
// blob that no manifest names may belong to a coming revision, so it stays for stagedLife after it was written.
const (
	sweepPause = time.Hour
	stagedLife = 24 * time.Hour
)

// sweeper removes unused blobs and certificates.
type sweeper struct {
	files winos.Files
	state *state.File
	store *payload.Store
	clock clock.Clock
	// now is the clock that dates the host's files.
	now func() time.Time
	// swept is the time of the last sweep, and revision the verified revision at that time.
	swept    time.Time
	revision string
}

// sweep removes blobs that no revision needs. It keeps the blobs of the current revision, of the previous revision,
// and of a revision that is being staged. The previous revision's blobs stay so that the host can roll back without
// the operator.
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
	if err = s.overlayCertificates(); err != nil {
		log.Info("old certificates of the hybrid overlay can't be removed", "detail", err.Error())
	}
}

// keptCertificates is how many certificates of the hybrid overlay stay: the current one and the previous one.
const keptCertificates = 2

// overlayCertificates removes old certificates of hybrid-overlay-node, which nothing else removes. Each day
// hybrid-overlay-node gets another certificate in another file. ovnkube-client-current.pem points to the newest.
func (s *sweeper) overlayCertificates() error {
	entries, err := s.files.List(contract.DirCNIConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	old := slices.DeleteFunc(entries, func(e winos.FileInfo) bool {
		date, ok := strings.CutPrefix(strings.ToLower(e.Name), "ovnkube-client-")
		return e.Dir || !ok || !strings.HasSuffix(date, ".pem") || date == "current.pem"
	})
	// The names end in the creation time.
	slices.SortFunc(old, func(a, b winos.FileInfo) int { return strings.Compare(b.Name, a.Name) })
	var all []error
	for _, e := range old[min(keptCertificates, len(old)):] {
		all = append(all, s.files.Remove(contract.DirCNIConfig+`\`+e.Name))
	}
	return errors.Join(all...)
}
