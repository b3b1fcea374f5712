package apply

import (
	"context"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// waitLimit is how long one pass waits in total for files that other programs have open. A virus scanner closes each
// file after a moment. If files stay open for longer, the pass gives up, and the next pass retries.
const waitLimit = 10 * time.Second

// waits tracks the remaining wait time of a pass.
type waits struct {
	left time.Duration
}

// untilClosed is like winos.UntilClosed, but limited to the remaining time. If no time remains, it makes one attempt.
func (w *waits) untilClosed(ctx context.Context, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, w.left)
	defer cancel()
	begun := time.Now()
	err := winos.UntilClosed(ctx.Done(), attempt)
	w.left -= time.Since(begun)
	return err
}
