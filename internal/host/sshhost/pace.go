package sshhost

import (
	"fmt"
	"io"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// leastRate in bytes per second is what a host must take of a transfer: one that takes it in drops
	// keeps a place that others need. It is half of what a slow line has; at it, a payload of 300 MB takes two
	// and a half hours.
	leastRate = 32 << 10
	// leastTime is what a transfer of any size may take. It is longer than a host that is gone is waited
	// for, and than a virus scanner holds up the end of a file.
	leastTime = 2 * time.Minute
	// mostSaved is how long a host that took a transfer faster may then take nothing of it.
	mostSaved = 5 * time.Minute
)

// errSlow ends a connection over which a transfer does not come to its end.
var errSlow = fmt.Errorf("the host takes less than %d KiB of a transfer in a second", leastRate>>10)

// pace is content that measures how its receiver keeps up with the least rate. While the receiver
// waits for content, its time does not pass.
type pace struct {
	content io.Reader
	clock   clock.PassiveClock

	mu    sync.Mutex
	taken int64
	// spent is the receiver's time until since; reading says that it stands still.
	spent   time.Duration
	since   time.Time
	reading bool
}

func newPace(content io.Reader, c clock.PassiveClock) *pace {
	return &pace{content: content, clock: c, since: c.Now()}
}

// Read is io.Reader.
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

// allowed is how long the receiver may take for what it has taken so far. The lock is held.
func (p *pace) allowed() time.Duration {
	return leastTime + time.Duration(p.taken)*time.Second/leastRate
}

// spentNow is the receiver's time until now. The lock is held.
func (p *pace) spentNow() time.Duration {
	if p.reading {
		return p.spent
	}
	return p.spent + p.clock.Since(p.since)
}

// left is how long the receiver may take from now on until it takes more, or comes to the end.
func (p *pace) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.allowed() - p.spentNow()
}
