//go:build linux

package wine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror/resolver"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/wine"
)

// exporterPort follows the port of the node's own windows_exporter, which is a stand-in in these tests.
const exporterPort = contract.MetricsPort + 1

// exports runs the real windows_exporter on a host until the test ends. Its flags for the daemon's file are the same as
// on nodes. It runs only this collector, because all others need parts of Windows that Wine lacks.
func (s *stage) exports(t *testing.T, h *fleet.Host) {
	t.Helper()
	exe := s.build(t, "windows_exporter.exe", func(ctx context.Context, to string) error {
		return wine.Build(ctx, wine.Program{Module: "payload/exporter",
			Package: "github.com/prometheus-community/windows_exporter"}, to)
	})
	m, program := machine(h), place(t, h, exe)
	ctx, cancel := context.WithCancel(t.Context())
	var said bytes.Buffer
	ended := make(chan error, 1)
	go func() {
		_, err := m.Run(ctx, wine.Command{Program: program, Stdout: &said, Stderr: &said, Arguments: []string{
			"--collectors.enabled=textfile", "--collector.textfile.directories=" + contract.DirMetrics,
			"--web.listen-address=127.0.0.1:" + strconv.Itoa(exporterPort), "--log.file=stderr",
		}})
		ended <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; t.Failed() {
			t.Logf("windows_exporter ended: %v; it said:\n%s", err, &said)
		}
	})
}

// scrape reads the exporter's metrics as Prometheus does.
func scrape(ctx context.Context, h *fleet.Host) (map[string]*dto.MetricFamily, error) {
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			return machine(h).Dial(ctx, netip.MustParseAddrPort(address))
		},
	}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		fmt.Sprintf("http://127.0.0.1:%d/metrics", exporterPort), http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	return families, errors.Join(err, response.Body.Close())
}

// value returns the value of the metric with exactly these labels. If there is no such metric, it returns 0.
func value(family *dto.MetricFamily, labels map[string]string) float64 {
	for _, metric := range family.GetMetric() {
		has := map[string]string{}
		for _, label := range metric.GetLabel() {
			has[label.GetName()] = label.GetValue()
		}
		if maps.Equal(has, labels) {
			return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
		}
	}
	return 0
}

// counted waits until the exporter serves the counters of the pulls in this test.
func (s *stage) counted(t *testing.T, h *fleet.Host, r registries) {
	t.Helper()
	wanted := map[string]map[string]string{
		"wicd_resolver_failures_total":     {},
		"wicd_resolver_served_total":       {"registry": r.copies.Host},
		"wicd_resolver_served_bytes_total": {"registry": r.copies.Host},
		"wicd_resolver_skipped_total":      {"registry": r.dead, "reason": string(resolver.ReasonUnreachable)},
		"windows_textfile_mtime_seconds":   {"file": path.Base(strings.ReplaceAll(contract.PathMetrics, `\`, "/"))},
	}
	var families map[string]*dto.MetricFamily
	s.await(t, "windows_exporter to serve what the daemon counts",
		func(ctx context.Context) (_ bool, _ string, err error) {
			if families, err = scrape(ctx, h); err != nil {
				return false, err.Error(), nil //nolint:nilerr // the exporter may not listen yet
			}
			for name, labels := range wanted {
				if value(families[name], labels) == 0 {
					return false, fmt.Sprintf("%s%v is %v", name, labels, families[name]), nil
				}
			}
			return true, "", nil
		})
	var own []string
	for name, family := range families {
		if !strings.HasPrefix(name, "wicd_") {
			continue
		}
		own = append(own, name)
		// If the daemon's file has no help text, the exporter creates one.
		if family.GetType() != dto.MetricType_COUNTER || family.GetHelp() == "" ||
			strings.Contains(family.GetHelp(), contract.DirMetrics) {
			t.Errorf("%s is a %s with the help %q", name, family.GetType(), family.GetHelp())
		}
	}
	if len(own) != len(wanted)-1 {
		t.Errorf("the daemon's metrics are %q", slices.Sorted(slices.Values(own)))
	}
	if failed := families["windows_textfile_scrape_error"]; failed == nil || value(failed, nil) != 0 {
		t.Errorf("the exporter can't read a part of the daemon's file: %v", failed)
	}
}
