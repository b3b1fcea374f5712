package sshhost

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// leastRate is the minimum rate of a transfer in bytes per second. A slower host would occupy a worker
	// that others need. It is half the rate of a slow line. At this rate, a payload of 300 MB takes two and a
	// half hours.
	leastRate = 32 << 10
	// leastTime is the minimum time for a transfer of any size. It is longer than the keepalive timeout, and
	// than a virus scanner delays the end of a file.
	leastTime = 2 * time.Minute
	// mostSaved is how long a host that was faster before may then accept nothing.
	mostSaved = 5 * time.Minute
)

// errSlow ends a connection whose transfer is too slow.
var errSlow = fmt.Errorf("the host takes less than %d KiB of a transfer in a second", leastRate>>10)

// pace is content that measures whether its receiver reaches the minimum rate. The time during which the
// receiver waits for content doesn't count.
type pace struct {
	content io.Reader
	clock   clock.PassiveClock

	mu    sync.Mutex
	taken int64
	// spent is the receiver's time until since. While reading is true, this time doesn't increase.
	spent   time.Duration
	since   time.Time
	reading bool
}

func newPace(content io.Reader, c clock.PassiveClock) *pace {
	return &pace{content: content, clock: c, since: c.Now()}
}

// Read implements io.Reader.
func (p *pace) Read(b []byte) (int, error) {
	p.note(0, true)
	n, err := p.content.Read(b)
	p.note(n, false)
	return n, err
}

func (p *pace) note(taken int, reading bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spent, p.since = p.spentNow(), p.clock.Now()
	p.taken, p.reading = p.taken+int64(taken), reading
	p.spent += max(0, p.allowed()-p.spent-mostSaved)
}

// allowed returns how long the receiver may have taken for the bytes so far. The caller holds the lock.
func (p *pace) allowed() time.Duration {
	return leastTime + time.Duration(p.taken)*time.Second/leastRate
}

// spentNow returns the receiver's time until now. The caller holds the lock.
func (p *pace) spentNow() time.Duration {
	if p.reading {
		return p.spent
	}
	return p.spent + p.clock.Since(p.since)
}

// left returns how long the receiver may take before it must accept more or finish.
func (p *pace) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allowed() - p.spentNow()
}
