package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	// refreshInterval is the longest time between two reports, and minInterval is the shortest time.
	refreshInterval = 5 * time.Minute
	minInterval     = 10 * time.Second
)

// Writer writes the report. Tell may be called while Run runs.
type Writer struct {
	host    winos.Host
	version string
	news    chan struct{}

	mu   sync.Mutex
	last *contract.Reconciled
}

// New returns a Writer for a daemon with this version.
func New(host winos.Host, version string) *Writer {
	return &Writer{host: host, version: version, news: make(chan struct{}, 1)}
}

// Tell records the result of a pass and returns at once. If the result differs from the previous result, Tell causes a
// new report. A different time alone doesn't count.
func (w *Writer) Tell(r contract.Reconciled) {
	r.Time = w.host.System.Now().UTC()
	w.mu.Lock()
	defer w.mu.Unlock()
	same := false
	if w.last != nil {
		before := *w.last
		before.Time = r.Time
		same = reflect.DeepEqual(before, r)
	}
	w.last = &r
	if !same {
		loop.Signal(w.news)
	}
}

// Run writes reports until ctx ends: at once, after each changed result, and periodically. If a report can't be
// written, for example because a program is reading the file, Run continues with the next report.
func (w *Writer) Run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := w.write(ctx); err != nil && ctx.Err() == nil {
			logr.FromContextOrDiscard(ctx).V(1).Info("the report can't be written", "detail", err.Error())
		}
		loop.Wait(ctx, clock.RealClock{}, nil, minInterval)
		loop.Wait(ctx, clock.RealClock{}, w.news, refreshInterval-minInterval)
	}
}

func (w *Writer) write(ctx context.Context) error {
	r := Look(ctx, w.host, w.version)
	w.mu.Lock()
	r.Reconciled = w.last
	w.mu.Unlock()
	text, err := Encode(r)
	if err != nil {
		return err
	}
	if err = w.host.Files.MkdirAll(contract.DirDaemonLog, winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(w.host.Files, contract.PathReport, bytes.NewReader(text), winos.AccessInherit)
}

// Encode returns a report as text.
func Encode(r contract.NodeReport) ([]byte, error) {
	bound(&r)
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return nil, fmt.Errorf("encoding the report: %w", err)
	}
	return append(text, '\n'), nil
}

// Last returns the last recorded result of a pass from the report file, or nil if the file can't be read.
func Last(files winos.Files) *contract.Reconciled {
	file, err := files.Open(contract.PathReport)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, contract.MaxReport+1))
	var r contract.NodeReport
	if err != nil || len(content) > contract.MaxReport || json.Unmarshal(content, &r) != nil {
		return nil
	}
	return r.Reconciled
}
