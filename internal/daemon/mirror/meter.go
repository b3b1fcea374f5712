package mirror

import (
	"bytes"
	"context"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/common/expfmt"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// writeEvery is the time between checks of the counters. It is short enough for a check between any two scrapes.
const writeEvery = 15 * time.Second

// Write writes the metrics file whenever a counter has changed, until ctx ends. It retries a failed write.
func (h *Reporter) Write(ctx context.Context) {
	var written []byte
	failed := false
	loop.Run(ctx, h.Clock, nil, func(ctx context.Context) time.Duration {
		text, err := h.meter()
		if err == nil && !bytes.Equal(text, written) {
			if err = winos.WriteFile(h.Files, contract.PathMetrics, bytes.NewReader(text),
				winos.AccessAdministrators); err == nil {
				written = text
			}
		}
		if err != nil && !failed {
			logr.FromContextOrDiscard(ctx).Info("the metrics of pulls can't be written", "detail", err.Error())
		}
		failed = err != nil
		return writeEvery
	})
}

func (h *Reporter) meter() ([]byte, error) {
	families, err := h.metrics.Gather()
	if err != nil {
		return nil, err
	}
	var text bytes.Buffer
	for _, family := range families {
		if _, err = expfmt.MetricFamilyToText(&text, family); err != nil {
			return nil, err
		}
	}
	return text.Bytes(), nil
}
