// Package clock makes the times of a clock that is set while a program runs. Tests use it in place of the wall clock.
package clock

import (
	"time"
	"unsafe"
)

// words are how package time keeps a time with two readings: a flag, 33 bits of seconds since 1885 and 30 bits of
// nanoseconds are the wall clock's; ext is the monotonic one.
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

// At is the present time as a clock reads it that was set to a whole second: the monotonic reading stays.
func At(wall time.Time) time.Time {
	t := time.Now()
	since1885 := uint64(wall.Unix() - time.Date(1885, 1, 1, 0, 0, 0, 0, time.UTC).Unix()) //nolint:gosec // is later
	w := wordsOf(&t)
	w.wall, w.loc = hasMonotonic|since1885<<secondsShift, nil
	if !t.Round(0).Equal(wall) {
		panic("package time keeps its readings otherwise: " + t.String())
	}
	return t
}

// Set is a time as the same clock reads it after it was set forward, or back: the monotonic reading stays.
func Set(t time.Time, forward time.Duration) time.Time {
	moved := t
	wordsOf(&moved).wall += uint64(forward/time.Second) << secondsShift //nolint:gosec // wraps if it is negative
	if moved.Sub(t) != 0 || !moved.Round(0).Equal(t.Round(0).Add(forward)) {
		panic("package time keeps its readings otherwise: " + moved.String())
	}
	return moved
}
