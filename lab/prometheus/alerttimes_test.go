package prometheus_test

import (
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/lab/prometheus"
)

func TestEachAlertIsQuickerByOneNumberAndElseTheSame(t *testing.T) {
	t.Parallel()
	const head = `apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: rules
spec:
  groups:
  - name: all
    rules:
`
	in := `apiVersion: v1
kind: Service
metadata: {name: other}
---
` + head + `    - alert: Hour
      annotations:
        summary: for 30m
      expr: |
        count(count_over_time(a{b=~"30m|x"}[1h])) > 5 and a offset 30m == 2 * 3600 or a{b=~"(?i:x)"}[30m:5m]
      for: 10m
    - alert: Days
      expr: b == 1
      for: 2d
    - expr: rate(c[5m])
      record: d
`
	out, factors, err := prometheus.ScaleAlertTimes([]byte(in), 24*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.NewReplacer("[1h]", "[24s]", "offset 30m", "offset 12s", "[30m:5m]", "[12s:2s]", "for: 10m", "for: 4s", "for: 2d", "for: 24s").
		Replace(in)
	if string(out) != want {
		t.Errorf("the manifest is %s, want %s", out, want)
	}
	if factors["Hour"] != 150 || factors["Days"] != 7200 || len(factors) != 2 {
		t.Errorf("the factors are %v", factors)
	}
	for _, bad := range []string{"a[1x] > 0", "a > 0", "a[10s] > 0"} {
		if _, _, err = prometheus.ScaleAlertTimes([]byte(head+"    - alert: Bad\n      expr: "+bad+"\n"), 24*time.Second); err == nil {
			t.Errorf("%s was accepted, but it must be refused", bad)
		}
	}
}
