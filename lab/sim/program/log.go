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

// withLog gives a context whose logger writes lines into a program's own log, as far as a reader
// can tell the way klog does.
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

// openLog opens a program's log file to append to it. Its directory must exist, as for the real
// programs.
func openLog(p *sim.Process, path string) (io.WriteCloser, error) {
	log, err := p.AppendTo(path)
	if err != nil {
		return nil, fmt.Errorf("opening the log file: %w", err)
	}
	return log, nil
}

// refuse says on stderr why a program does not start, and gives its exit code.
func refuse(p *sim.Process, err error) int {
	_, _ = fmt.Fprintf(p.Stderr, "E%s %v\n", p.Host.System.Now().UTC().Format("0102 15:04:05.000000"), err)
	return 1
}
