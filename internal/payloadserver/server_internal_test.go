package payloadserver

import (
	"testing"
	"time"
)

func TestA55_ATransferKeepsUpWithTheLeastRate(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		after   time.Duration
		written int64
		want    time.Duration // time since began
	}{
		"the first piece has a minute":                       {0, 0, time.Minute},
		"a transfer that takes little ends":                  {50 * time.Second, 1 << 10, time.Minute + time.Second/64},
		"a quick one has a minute for each piece":            {10 * time.Second, 1 << 30, 70 * time.Second},
		"one at the least rate goes on for as long as it is": {time.Hour, 3600 * leastRate, time.Hour + time.Minute},
	} {
		if got := writeDeadline(began, began.Add(c.after), c.written).Sub(began); got != c.want {
			t.Errorf("%s: until %s, want %s", name, got, c.want)
		}
	}
}
