package apply_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func digestOf(content string) string { return contract.Digest([]byte(content)) }

func machine(t *testing.T) *sim.Machine {
	t.Helper()
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestContentWithAnotherDigestNeverArrives(t *testing.T) {
	t.Parallel()
	m := machine(t)
	files := m.Host().Files
	stateFile, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	const path = `C:\k\x`
	if err = apply.WriteFile(t.Context(), files, stateFile, path, digestOf("good"),
		strings.NewReader("good")); err != nil {
		t.Fatal(err)
	}
	err = apply.WriteFile(t.Context(), files, stateFile, path, digestOf("better"), strings.NewReader("bad"))
	if !errors.Is(err, apply.ErrDigest) || apply.FileProblem(err).Reason != contract.ReasonPayloadCorrupt {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = apply.WriteFile(ended, files, stateFile, path, digestOf("better"), strings.NewReader("better"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got, err := apply.DigestOf(t.Context(), files, path); err != nil || got != digestOf("good") {
		t.Errorf("the file has %s, %v", got, err)
	}
	if there, _ := winos.Exists(files, path+".tmp"); there {
		t.Error("a temporary file still exists")
	}
}

// A virus scanner may hold any file open for a moment. Only programs can be renamed while they are open.
func TestAFileThatIsBeingReadIsReplacedAsSoonAsItIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		files := machine(t).Host().Files
		const path = `C:\k\kubelet.conf`
		if err := errors.Join(files.MkdirAll(`C:\k`, winos.AccessInherit),
			winos.WriteFile(files, path, strings.NewReader("old"), winos.AccessInherit)); err != nil {
			t.Fatal(err)
		}
		if err := apply.StageFile(t.Context(), files, path, apply.Content{Digest: digestOf("new"),
			Content: strings.NewReader("new")}); err != nil {
			t.Fatal(err)
		}
		reader, err := files.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { closed <- reader.Close() })
		if err = errors.Join(apply.CommitFile(t.Context(), files, path, ""), <-closed); err != nil {
			t.Fatal(err)
		}
		if got, err := apply.DigestOf(t.Context(), files, path); err != nil || got != digestOf("new") {
			t.Errorf("the file has %s, %v", got, err)
		}
	})
}

// staged writes old content to path, unless old is empty, and new content to the temporary file next to path.
func staged(t *testing.T, files winos.Files, path, old string) {
	t.Helper()
	if err := files.MkdirAll(`C:\k`, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if old != "" {
		if err := winos.WriteFile(files, path, strings.NewReader(old), winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
	}
	if err := apply.StageFile(t.Context(), files, path, apply.Content{Digest: digestOf("MZ new"),
		Content: strings.NewReader("MZ new")}); err != nil {
		t.Fatal(err)
	}
}

func TestAProgramThatIsBeingReadIsReplacedAsSoonAsItIsClosed(t *testing.T) {
	t.Parallel()
	const path = `C:\k\x.exe`
	for name, c := range map[string]struct{ old, read string }{
		"the old one":                              {"MZ old", path},
		"the new one beside it":                    {"MZ old", path + ".tmp"},
		"the new one, where there was none so far": {"", path + ".tmp"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				files := machine(t).Host().Files
				staged(t, files, path, c.old)
				reader, err := files.Open(c.read)
				if err != nil {
					t.Fatal(err)
				}
				closed := make(chan error, 1)
				time.AfterFunc(50*time.Millisecond, func() { closed <- reader.Close() })
				if err = errors.Join(apply.CommitFile(t.Context(), files, path, path+".old-1"), <-closed); err != nil {
					t.Fatal(err)
				}
				if got, err := winos.ReadFile(files, path); err != nil || string(got) != "MZ new" {
					t.Errorf("the file has %s, %v", got, err)
				}
			})
		})
	}
}

func TestWhoIsToldToEndWaitsForNoProgramThatIsOpen(t *testing.T) {
	t.Parallel()
	const path = `C:\k\x.exe`
	for _, read := range []string{path, path + ".tmp"} {
		t.Run(read, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				files := machine(t).Host().Files
				staged(t, files, path, "MZ old")
				reader, err := files.Open(read)
				if err != nil {
					t.Fatal(err)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				began := time.Now()
				err = apply.CommitFile(ended, files, path, path+".old-1")
				if !errors.Is(err, winos.ErrInUse) || time.Since(began) > 500*time.Millisecond {
					t.Errorf("after %s: %v", time.Since(began), err)
				}
				if err = reader.Close(); err != nil {
					t.Fatal(err)
				}
				if got, err := winos.ReadFile(files, path); err != nil || string(got) != "MZ old" {
					t.Errorf("the file has %s, %v", got, err)
				}
			})
		})
	}
}

// scanned is a disk with a virus scanner, as seen by a process that may be killed.
type scanned struct {
	winos.Files
	// open maps a path to the number of renames that fail because the scanner has the file open.
	open map[string]int
	// killedAt is the number of the rename before which the process is killed. The first rename has number 1. If
	// killedAt is 0, the process is never killed.
	killedAt, renames int
}

var errKilled = errors.New("the process was killed")

func (s *scanned) Rename(from, to string) error {
	s.renames++
	switch {
	case s.dead():
		return errKilled
	case s.open[from] > 0:
		s.open[from]--
		return winos.ErrInUse
	}
	return s.Files.Rename(from, to)
}

func (s *scanned) Remove(path string) error {
	if s.dead() {
		return errKilled
	}
	return s.Files.Remove(path)
}

func (s *scanned) dead() bool { return s.killedAt > 0 && s.renames >= s.killedAt }

// A virus scanner opens the new program, so the program can't be renamed to its path. Then the scanner opens the old
// program at its new name, so the old program can't be restored.
func TestAProgramIsReplacedWhoeverOpensItInBetweenAndWhereverItsDaemonIsKilled(t *testing.T) {
	t.Parallel()
	const path, aside = `C:\k\x.exe`, `C:\k\x.exe.old-1`
	run := func(t *testing.T, killedAt int) (renames int) {
		t.Helper()
		m := machine(t)
		files, services := m.Host().Files, m.Host().Services
		stateFile, err := state.Open(files)
		if err != nil {
			t.Fatal(err)
		}
		write := func(files winos.Files, content string) error {
			return apply.WriteFile(t.Context(), files, stateFile, path, digestOf(content), strings.NewReader(content))
		}
		if err = errors.Join(write(files, "MZ old"),
			services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: path}),
			services.Start(t.Context(), "x")); err != nil {
			t.Fatal(err)
		}
		disk := &scanned{Files: files, killedAt: killedAt,
			open: map[string]int{path: 1, path + ".tmp": 5, aside: 1}}
		if stateFile, err = state.Read(disk); err != nil {
			t.Fatal(err)
		}
		if err = write(disk, "MZ new"); (err != nil) != (killedAt > 0) {
			t.Fatal(err)
		}
		there := map[string]string{}
		for _, p := range []string{path, aside} {
			if content, err := winos.ReadFile(files, p); err == nil {
				there[p] = string(content)
			}
		}
		if there[path] != "MZ new" && there[path] != "MZ old" && there[aside] != "MZ old" {
			t.Errorf("the program is lost: %v", there)
		}
		if stateFile, err = state.Open(files); err != nil {
			t.Fatal(err)
		}
		if err = errors.Join(write(files, "MZ new"), services.Stop(t.Context(), "x"),
			apply.RemoveAside(files, stateFile)); err != nil {
			t.Fatal(err)
		}
		if got, err := winos.ReadFile(files, path); err != nil || string(got) != "MZ new" {
			t.Errorf("the file has %s, %v", got, err)
		}
		entries, err := files.List(`C:\k`)
		if err != nil || len(entries) != 2 {
			t.Errorf("the files besides the program and the state file are: %v, %v", entries, err)
		}
		return disk.renames
	}
	renames := 0
	t.Run("without a crash", func(t *testing.T) { renames = run(t, 0) })
	if renames < 10 {
		t.Fatalf("only %d renames were counted", renames)
	}
	for at := 1; at <= renames; at++ {
		t.Run(fmt.Sprintf("before rename %d", at), func(t *testing.T) {
			t.Parallel()
			run(t, at)
		})
	}
}

func TestARunningProgramIsMovedAsideAndSweptLater(t *testing.T) {
	t.Parallel()
	m := machine(t)
	files, services := m.Host().Files, m.Host().Services
	stateFile, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	const path = `C:\k\x.exe`
	write := func(content string) {
		t.Helper()
		if err := apply.WriteFile(t.Context(), files, stateFile, path, digestOf(content),
			strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	write("MZ 1")
	if err = services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: path}); err != nil {
		t.Fatal(err)
	}
	if err = services.Start(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	write("MZ 2")
	write("MZ 3")
	if !slices.Contains(stateFile.Aside, path+".old-1") {
		t.Errorf("aside: %v", stateFile.Aside)
	}
	if err = apply.RemoveAside(files, stateFile); err != nil || len(stateFile.Aside) != 1 {
		t.Errorf("after a sweep while the program runs: %v, %v", stateFile.Aside, err)
	}
	if err = services.Stop(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if err = apply.RemoveAside(files, stateFile); err != nil || len(stateFile.Aside) != 0 {
		t.Errorf("after a sweep later: %v, %v", stateFile.Aside, err)
	}
	if there, _ := winos.Exists(files, path+".old-1"); there {
		t.Error("the old program still exists")
	}
}
