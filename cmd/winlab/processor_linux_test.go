package main

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestProcessorTimesAreThoseOfProcAndOfThisProcess(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]processor{
		"12 (a) b (c) S 3 1 1 0 -1 4 5 6 7 8 100 50 1 1 20": {id: 12, parent: 3, name: "a) b (c",
			used: 1500 * time.Millisecond},
		"12 (short) S 3":                         {},
		"":                                       {},
		"x (a) S 3 1 1 0 -1 4 5 6 7 8 1 1 1 1 2": {},
	} {
		got, ok := parseStat(line)
		if ok != (want.name != "") || ok && got != want {
			t.Errorf("%q is %+v, %v", line, got, ok)
		}
	}
	before := own(t)
	for began := usage(t); usage(t)-began < 200*time.Millisecond; { // use this much processor time
	}
	if used := own(t) - before; used < 20*time.Millisecond || used > 10*time.Second {
		t.Errorf("the process used %v", used)
	}
}

func TestThePeakOfMemoryIsWhatTheProcessHasHad(t *testing.T) {
	t.Parallel()
	held := make([]byte, 64<<20)
	for i := range held {
		held[i] = 1
	}
	if peak, err := peakOf(os.Getpid()); err != nil || peak < 64 || peak > 10_000 {
		t.Errorf("%v MB, %v", peak, err)
	}
	runtime.KeepAlive(held)
	if peak, err := peakOf(-1); err == nil {
		t.Errorf("a process that does not exist has had %v MB", peak)
	}
}

// usage returns the processor time of this process as reported by getrusage(2).
func usage(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func own(t *testing.T) time.Duration {
	t.Helper()
	times, err := processorTimes()
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Base(os.Args[0])
	return times[name[:min(len(name), 15)]] // the kernel stores only 15 characters of a name
}
