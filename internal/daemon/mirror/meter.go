package mirror

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// writeEvery is the time between checks of the counters: once between two scrapes.
const writeEvery = 15 * time.Second

// Write maintains the file of counters until ctx ends. It writes the file when a counter changes, and removes it while
// there is no resolver. If the file can't be written because the exporter is reading it, Write retries at the next
// check.
func (h *Reporter) Write(ctx context.Context) {
	written := []byte("unknown") // an earlier process may have left one
	ticker := h.Clock.NewTicker(writeEvery)
	defer ticker.Stop()
	failed := false
	for {
		if text := h.meter(); !bytes.Equal(text, written) {
			err := h.put(text)
			if err == nil {
				written = text
			} else if !failed {
				logr.FromContextOrDiscard(ctx).Info("the metrics of pulls can't be written", "detail", err.Error())
			}
			failed = err != nil
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// put writes the file. If text is empty, put removes the file.
func (h *Reporter) put(text []byte) error {
	if len(text) > 0 {
		return winos.WriteFile(h.Files, contract.PathMetrics, bytes.NewReader(text), winos.AccessAdministrators)
	}
	if err := h.Files.Remove(contract.PathMetrics); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// meter returns the counters in Prometheus' text format, or nothing while there is no resolver.
func (h *Reporter) meter() []byte {
	var b bytes.Buffer
	head := func(name, help string) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s counter\n", name, help, name)
	}
	h.mu.Lock()
	counters := h.counters
	h.mu.Unlock()
	if counters == nil {
		return nil
	}
	all, failures := counters()
	head("wicd_resolver_failures_total", "Requests of containerd that no registry answered to the end, or that the "+
		"cluster refuses.")
	fmt.Fprintf(&b, "wicd_resolver_failures_total %d\n", failures)
	head("wicd_resolver_served_total", "Requests of containerd that a registry answered.")
	for _, c := range all {
		fmt.Fprintf(&b, "wicd_resolver_served_total{registry=%s} %d\n", label(c.Host), c.Served)
	}
	head("wicd_resolver_served_bytes_total", "Bytes of manifests and layers that came from a registry.")
	for _, c := range all {
		fmt.Fprintf(&b, "wicd_resolver_served_bytes_total{registry=%s} %d\n", label(c.Host), c.Bytes)
	}
	head("wicd_resolver_skipped_total", "How often a registry was skipped for the next, and why.")
	for _, c := range all {
		for _, reason := range slices.Sorted(maps.Keys(c.Passed)) {
			fmt.Fprintf(&b, "wicd_resolver_skipped_total{registry=%s,reason=%s} %d\n", label(c.Host),
				label(string(reason)), c.Passed[reason])
		}
	}
	return b.Bytes()
}

// label quotes a label's value.
func label(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}
