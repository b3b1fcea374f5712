// Package clock creates times as a program sees them after its computer's clock was set. Tests use it instead of the
// wall clock.
package clock

import (
	"time"
	"unsafe"
)

// words is the internal representation of time.Time. wall is the wall clock: a flag, 33 bits for seconds since 1885,
// and 30 bits for nanoseconds. ext is the monotonic clock.
type words struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

const (
	hasMonotonic = 1 << 63
	secondsShift = 30
)

func wordsOf(t *time.Time) *words { return (*words)(unsafe.Pointer(t)) }

// At returns the current time after the clock was set to a wall time of whole seconds. The monotonic reading stays.
func At(wall time.Time) time.Time {
	t := time.Now()
	since1885 := uint64(wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()) //nolint:gosec // positive
	w := wordsOf(&t)
	w.wall, w.loc = hasMonotonic|since1885<<secondsShift, nil
	if !t.Round(0).Equal(wall) {
		panic("package time keeps its readings otherwise: " + t.String())
	}
	return t
}

// Set returns the time t after the clock was set forward by a duration. A negative duration sets the clock back. The
// monotonic reading stays.
func Set(t time.Time, forward time.Duration) time.Time {
	moved := t
	wordsOf(&moved).wall += uint64(forward/time.Second) << secondsShift //nolint:gosec // wraps if forward is negative
	if moved.Sub(t) != 0 || !moved.Round(0).Equal(t.Round(0).Add(forward)) {
		panic("package time keeps its readings otherwise: " + moved.String())
	}
	return moved
}
