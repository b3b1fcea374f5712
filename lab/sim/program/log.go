package program

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/klog/v2"

	"github.com/windows-nodes/wmco/lab/sim"
)

// withLog returns a context with a logger, and the logger. The logger writes to the log of a program in a format that
// is similar to the format of klog.
func withLog(ctx context.Context, w io.Writer, now func() time.Time) (context.Context, logr.Logger) {
	var mu sync.Mutex
	log := funcr.New(func(prefix, args string) {
		mu.Lock()
		defer mu.Unlock()
		if prefix != "" {
			prefix += " "
		}
		_, _ = fmt.Fprintf(w, "I%s %s%s\n", now().UTC().Format("0102 15:04:05.000000"), prefix, args)
	}, funcr.Options{})
	return klog.NewContext(ctx, log), log
}

// openLog opens the log file of a program and appends to it. The directory must exist, because the real programs need
// it as well.
func openLog(p *sim.Process, path string) (io.WriteCloser, error) {
	log, err := p.AppendTo(path)
	if err != nil {
		return nil, fmt.Errorf("opening the log file: %w", err)
	}
	return log, nil
}

// refuse writes an error to stderr, and returns the exit code of a program that can't start.
func refuse(p *sim.Process, err error) int {
	_, _ = fmt.Fprintf(p.Stderr, "E%s %v\n", p.Host.System.Now().UTC().Format("0102 15:04:05.000000"), err)
	return 1
}
