package apply

import (
	"context"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// waitLimit is how long one pass waits in all for files that somebody has open. A scanner closes each of them
// in a moment; what is held for longer, or by the hundred, is left to the next pass.
const waitLimit = 10 * time.Second

// waits has what is left of that time in a pass.
type waits struct {
	left time.Duration
}

// untilClosed is winos.UntilClosed, for no longer than is left; then it makes one attempt.
func (w *waits) untilClosed(ctx context.Context, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, w.left)
	defer cancel()
	begun := time.Now()
	err := winos.UntilClosed(ctx.Done(), attempt)
	w.left -= time.Since(begun)
	return err
}
