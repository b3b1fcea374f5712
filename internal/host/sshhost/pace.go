package sshhost

import (
	"fmt"
	"io"
	"time"

	"k8s.io/utils/clock"
)

const (
	// leastRate is the minimum rate of a transfer in bytes per second. A slower host would occupy a worker that other
	// hosts need. At this rate, which is half the rate of a slow line, a payload of 300 MB takes 2.5 hours.
	leastRate = 32 << 10
	// leastTime is the time limit for each part of a transfer, and for the end of a transfer. It is longer than the
	// keepalive timeout, and longer than the delay that a virus scanner adds at the end of a file.
	leastTime = 2 * time.Minute
	// leastTaken is how many bytes a host must take within leastTime.
	leastTaken = leastRate * int(leastTime/time.Second)
)

var errSlow = fmt.Errorf("the host takes less than %d KiB of a transfer in a second", leastRate>>10)

// pace wraps the content of a transfer. If the receiver is slower than the minimum rate, Read fails. If the receiver
// doesn't read at all, the timer fires at the end of the time for the current part. The time during which the receiver
// waits for content doesn't count. The function `late` is called when the receiver is too slow.
type pace struct {
	content io.Reader
	clock   clock.PassiveClock
	timer   clock.Timer
	late    func()

	taken int
	// `left` was the remaining time for this part of the transfer at the time `since`.
	left  time.Duration
	since time.Time
}

func newPace(content io.Reader, c clock.WithTicker, late func()) *pace {
	return &pace{content: content, clock: c, timer: c.NewTimer(leastTime), late: late, left: leastTime, since: c.Now()}
}

func (p *pace) Read(b []byte) (int, error) {
	p.timer.Stop()
	if p.left -= p.clock.Since(p.since); p.left <= 0 {
		p.late()
		return 0, errSlow
	}
	n, err := p.content.Read(b)
	if p.taken += n; p.taken >= leastTaken || err != nil {
		p.taken, p.left = 0, leastTime
	}
	p.since = p.clock.Now()
	p.timer.Reset(p.left)
	return n, err
}
