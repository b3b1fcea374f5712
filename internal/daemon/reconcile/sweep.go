package reconcile

import (
	"context"
	"time"

	"github.com/go-logr/logr"
)

// What nobody needs any more is looked for at most every sweepPause. A blob that no manifest names
// may be of one that is still to come: it stays for stagedLife after it was written.
const (
	sweepPause = time.Hour
	stagedLife = 24 * time.Hour
)

// sweep removes blobs and confidential parts that neither the present desired state nor the one
// before names, nor one that is being staged. The one before stays, so that the host can go back to
// it without the operator; so what it came after goes when two newer ones have been proven.
func (t *Reconciler) sweep(ctx context.Context) {
	now := t.Clock.Now()
	if t.wished != nil || !t.Book.Proven || !t.swept.IsZero() && now.Sub(t.swept) < sweepPause {
		return
	}
	blobs := map[string]bool{}
	if t.stager != nil {
		keeps, known := t.stager.Keeps()
		if !known {
			return
		}
		blobs = keeps
	}
	t.swept = now
	log := logr.FromContextOrDiscard(ctx)
	sealed := []string{t.Book.Manifest.Confidential}
	for _, f := range t.Book.Manifest.Files {
		blobs[f.Digest] = true
	}
	if before := t.Book.Before; before != nil {
		sealed = append(sealed, before.Manifest.Confidential)
		for _, f := range before.Manifest.Files {
			blobs[f.Digest] = true
		}
	}
	removed, err := t.store.Sweep(blobs, t.Host.System.Now().Add(-stagedLife))
	if err != nil {
		log.Info("payload that nobody needs can't be removed", "detail", err.Error())
	}
	if removed > 0 {
		log.Info("removed payload that nobody needs", "blobs", removed)
	}
	if err = t.vault.Sweep(sealed...); err != nil {
		log.Info("confidential parts that nobody needs can't be removed", "detail", err.Error())
	}
}
