package logs_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/logs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const dir = contract.DirLog + `\containerd`

type rig struct {
	*sim.Machine
	rotator *logs.Rotator
	log     *sim.File
}

// inBubble runs a test with its own clock. A program appends to its log during the test.
func inBubble(t *testing.T, test func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := m.Close(); err != nil {
				t.Error(err)
			}
		}()
		h := m.Host()
		if err = h.Files.MkdirAll(dir, winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
		r := &rig{Machine: m, rotator: logs.NewRotator(h)}
		if r.log, err = m.OpenFile(dir+`\containerd.log`, os.O_WRONLY|os.O_CREATE|os.O_APPEND); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = r.log.Close() }()
		test(t, r)
	})
}

func follow(r *rig, log contract.Log) {
	log.Path = dir + `\containerd.log`
	r.rotator.Follow(contract.Manifest{Services: []contract.Service{{Name: "containerd", Log: &log}, {Name: "quiet"}}})
}

func (r *rig) line(t *testing.T, text string) {
	t.Helper()
	if _, err := r.log.Write([]byte(text + "\n")); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) names(t *testing.T) (names []string) {
	t.Helper()
	entries, err := r.Host().Files.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name)
	}
	return names
}

func (r *rig) read(t *testing.T, name string) string {
	t.Helper()
	content, err := winos.ReadFile(r.Host().Files, dir+`\`+name)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

func TestA16_AFullLogMovesAsideAndItsProgramGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		follow(r, contract.Log{MaxSize: 100})
		r.line(t, strings.Repeat("a", 98))
		r.rotator.Turn(t.Context())
		if names := r.names(t); len(names) != 1 {
			t.Errorf("the log was moved before it was full: %v", names)
		}
		r.line(t, "b")
		r.rotator.Turn(t.Context())
		r.line(t, "after")
		names := r.names(t)
		if len(names) != 2 || !strings.HasPrefix(names[0], "containerd-2") || !strings.HasSuffix(names[0], ".log") ||
			names[1] != "containerd.log" {
			t.Fatalf("the files are %v", names)
		}
		if got := r.read(t, names[0]); got != strings.Repeat("a", 98)+"\nb\n" {
			t.Errorf("the moved log is %q", got)
		}
		if got := r.read(t, "containerd.log"); got != "after\n" {
			t.Errorf("the new log is %q", got)
		}
	})
}

func TestA16_OlderLogsAreLimitedByNumberAndAge(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		follow(r, contract.Log{MaxSize: 10, MaxFiles: 3, MaxAgeSeconds: 3600})
		for n := range 6 {
			r.line(t, fmt.Sprintf("line %d of more than 10", n))
			r.rotator.Turn(t.Context())
			time.Sleep(time.Minute)
		}
		names := r.names(t)
		if len(names) != 4 || !strings.HasPrefix(r.read(t, names[0]), "line 3") {
			t.Errorf("the files are %v", names)
		}
		time.Sleep(2 * time.Hour)
		r.rotator.Turn(t.Context())
		if names = r.names(t); !slices.Equal(names, []string{"containerd.log"}) {
			t.Errorf("after two hours: %v", names)
		}
	})
}

func TestOlderLogsAreRemovedThoughTheClockWasSetBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		follow(r, contract.Log{MaxSize: 10, MaxAgeSeconds: 3600})
		r.SetClockOffset(48 * time.Hour)
		r.rotator.Turn(t.Context())
		r.SetClockOffset(0)
		r.line(t, "more than ten")
		r.rotator.Turn(t.Context())
		if names := r.names(t); len(names) != 2 {
			t.Fatalf("the files are %v", names)
		}
		time.Sleep(2 * time.Hour)
		r.rotator.Turn(t.Context())
		if names := r.names(t); !slices.Equal(names, []string{"containerd.log"}) {
			t.Errorf("after two hours: %v", names)
		}
	})
}

func TestOlderLogsOfATimeToComePushNoNewOneOut(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		follow(r, contract.Log{MaxSize: 10, MaxFiles: 2})
		turn := func(text string) {
			r.line(t, text)
			r.rotator.Turn(t.Context())
			time.Sleep(time.Minute)
		}
		r.SetClockOffset(48 * time.Hour)
		turn("written while the clock was ahead")
		turn("once more, while it was ahead")
		r.SetClockOffset(0)
		turn("written since")
		names := r.names(t)
		if !slices.ContainsFunc(names, func(name string) bool { return r.read(t, name) == "written since\n" }) {
			t.Errorf("the newest file is gone: %v", names)
		}
	})
}

func TestALogThatItsProgramRotatesIsOnlyPruned(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		files := r.Host().Files
		for _, name := range []string{"containerd-20260102-150405.log", "containerd-20260102-150406.log",
			"containerd-20260102-150407.log", "other-20260102-150405.log", "containerdx.log"} {
			time.Sleep(time.Second)
			if err := winos.WriteFile(files, dir+`\`+name, strings.NewReader("x"), winos.AccessInherit); err != nil {
				t.Fatal(err)
			}
		}
		r.line(t, strings.Repeat("a", 1000))
		follow(r, contract.Log{Rotates: true, MaxSize: 10, MaxFiles: 1})
		r.rotator.Turn(t.Context())
		want := []string{"containerd-20260102-150407.log", "containerd.log", "containerdx.log",
			"other-20260102-150405.log"}
		if names := r.names(t); !slices.Equal(names, want) {
			t.Errorf("the files are %v", names)
		}
	})
}

func TestWithoutLimitsNothingIsDone(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		follow(r, contract.Log{})
		r.line(t, strings.Repeat("a", 1<<20))
		r.rotator.Turn(t.Context())
		if names := r.names(t); len(names) != 1 || len(r.read(t, "containerd.log")) != 1<<20+1 {
			t.Errorf("the files are %v", names)
		}
	})
}

func TestOnAFullDiskTheLogIsEmptiedAndItsProgramGoesOn(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		follow(r, contract.Log{MaxSize: 100})
		r.line(t, strings.Repeat("a", 1000))
		r.SetDiskFree(10)
		r.rotator.Turn(t.Context())
		r.line(t, "after")
		if names := r.names(t); len(names) != 1 || r.read(t, "containerd.log") != "after\n" {
			t.Errorf("the files are %v", names)
		}
	})
}

func TestALogThatNobodyMayTouchKeepsNoOtherBack(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		other := contract.DirLog + `\kubelet\kubelet.log`
		files := r.Host().Files
		if err := files.MkdirAll(contract.DirLog+`\kubelet`, winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
		if err := winos.WriteFile(files, other, strings.NewReader(strings.Repeat("x", 200)),
			winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
		r.line(t, strings.Repeat("a", 200))
		r.SetPathFault(other, winos.ErrDenied)
		r.rotator.Follow(contract.Manifest{
			Services: []contract.Service{{Log: &contract.Log{Path: other, MaxSize: 100}},
				{Log: &contract.Log{Path: dir + `\containerd.log`, MaxSize: 100}}},
			Daemon: &contract.DaemonSettings{Log: &contract.Log{MaxSize: 1, MaxFiles: 1}},
		})
		r.rotator.Turn(t.Context())
		if names := r.names(t); len(names) != 2 {
			t.Errorf("the files are %v", names)
		}
	})
}

func TestTheRotatorLooksByItself(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		follow(r, contract.Log{MaxSize: 10})
		done := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { defer close(done); r.rotator.Run(ctx) }()
		time.Sleep(time.Second)
		r.line(t, "more than ten bytes")
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if names := r.names(t); len(names) != 2 {
			t.Errorf("the files are %v", names)
		}
		cancel()
		<-done
	})
}
