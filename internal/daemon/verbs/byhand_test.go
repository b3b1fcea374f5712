package verbs_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestCleanupByHandFromTheInstalledProgramCleansTheHost(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	var said bytes.Buffer
	if code := r.Exec(t.Context(), sim.ExecRequest{CommandLine: contract.PathDaemon + " cleanup",
		Stdout: &said}); code != 0 || !strings.Contains(said.String(), "removed") {
		t.Errorf("exit code %d, the output is %q", code, said.String())
	}
	if _, err := r.Host().Services.Get(t.Context(), contract.ServiceCleanup); !errors.Is(err, winos.ErrNotFound) {
		t.Errorf("the daemon's service still exists: %v", err)
	}
	if there, err := winos.Exists(r.Host().Files, contract.DirK); err != nil || there {
		t.Errorf(`C:\k stays: %t, %v`, there, err)
	}
}

func TestCleanupDoesNotEndProgramsOfOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	const theirs = contract.DirK + `\tool\agent.exe`
	if err := r.Host().Files.MkdirAll(contract.DirK, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	write(t, r, theirs, "MZ", winos.AccessAdministrators)
	if _, err := r.StartProgram(theirs); err != nil {
		t.Fatal(err)
	}
	join(t, r)
	cleanUp(t, r)
	if !slices.ContainsFunc(r.Processes(), func(p sim.ProcessInfo) bool { return p.Exe == theirs }) {
		t.Error("a program that is not ours was ended")
	}
}

func TestCleanupEndsAProgramThatMadeRoomForNothingThatIsOursNow(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	const before = contract.DirK + `\before.exe`
	if err := r.Host().Files.MkdirAll(contract.DirK, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	write(t, r, contract.DirK+`\theirs`, "so C:\\k is not ours", winos.AccessAdministrators)
	join(t, r)
	write(t, r, before, "MZ", winos.AccessAdministrators)
	if _, err := r.StartProgram(before); err != nil {
		t.Fatal(err)
	}
	stateFile, err := state.Read(r.Host().Files)
	if err != nil {
		t.Fatal(err)
	}
	aside := winos.AsidePath(before, 1)
	stateFile.Aside.Add(aside)
	if err = errors.Join(stateFile.Save(), r.Host().Files.Rename(before, aside)); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r)
	if slices.ContainsFunc(r.Processes(), func(p sim.ProcessInfo) bool { return p.Exe == before }) {
		t.Error("the program still runs")
	}
}

// The previous call's lock file is marked for deletion, but a program still has it open. The next call must wait.
func TestALockThatIsAboutToGoIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	r.SetPendingLocks(3)
	answer := call[contract.PrepareAnswer](t, r, contract.VerbPrepare, contract.PrepareRequest{})
	if answer.Problem != nil {
		t.Error(answer.Problem)
	}
}
