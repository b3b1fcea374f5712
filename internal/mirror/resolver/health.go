package resolver

import (
	"sync"
	"time"
)

// How long a dead host is left alone: long enough that the layers of one image don't each wait for
// it, short enough that it is back in its place soon after it has recovered. Every failure in a row
// doubles the pause.
const (
	firstPause = 15 * time.Second
	longPause  = 2 * time.Minute
)

// hosts bounds what is remembered about hosts. A cluster has tens; containerd may name any.
const hosts = 256

// health remembers which hosts did not answer. It knows three states: well (nothing remembered),
// dead (until a moment), and trying again (one request at a time is let through after that moment).
type health struct {
	mu   sync.Mutex
	now  func() time.Time
	dead map[string]*death
}

type death struct {
	reason Reason
	pause  time.Duration
	until  time.Time
	trying bool
}

func newHealth(now func() time.Time) *health {
	return &health{now: now, dead: map[string]*death{}}
}

// admits says whether host is worth a request now, and if not, why it was found dead. Who was
// admitted must report the outcome by well, failed or unknown.
func (h *health) admits(host string) (Reason, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.dead[host]
	switch {
	case !ok:
		return "", true
	case d.trying || h.now().Before(d.until):
		return d.reason, false
	}
	d.trying = true
	return "", true
}

// well notes that host answered, whatever it said.
func (h *health) well(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.dead, host)
}

// failed notes that host did not answer.
func (h *health) failed(host string, reason Reason) {
	h.mu.Lock()
	defer h.mu.Unlock()
	d, ok := h.dead[host]
	if !ok {
		h.makeRoom()
		d = &death{pause: firstPause / 2}
		h.dead[host] = d
	}
	// Requests that were under way together say nothing new: only one that was sent after the pause
	// makes it longer.
	if now := h.now(); !ok || !now.Before(d.until) {
		d.pause = min(2*d.pause, longPause)
		d.until = now.Add(d.pause)
	}
	d.reason, d.trying = reason, false
}

// unknown notes that a request ended without telling anything about host, because the client went
// away.
func (h *health) unknown(host string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if d, ok := h.dead[host]; ok {
		d.trying = false
	}
}

// makeRoom forgets the host that may be tried again soonest.
func (h *health) makeRoom() {
	if len(h.dead) < hosts {
		return
	}
	var soonest string
	for host, d := range h.dead {
		if soonest == "" || d.until.Before(h.dead[soonest].until) {
			soonest = host
		}
	}
	delete(h.dead, soonest)
}
