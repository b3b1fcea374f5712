package state_test

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func stateFiles(t *testing.T) winos.Files {
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
	if err = m.Host().Files.MkdirAll(contract.DirK, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	return m.Host().Files
}

func open(t *testing.T, f winos.Files) *state.File {
	t.Helper()
	stateFile, err := state.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return stateFile
}

func TestWhatIsWrittenIsReadAgain(t *testing.T) {
	t.Parallel()
	f := stateFiles(t)
	stateFile := open(t, f)
	if stateFile.Exists() {
		t.Error("a fresh host has a state file")
	}
	if err := stateFile.Save(); err != nil || stateFile.Exists() {
		t.Errorf("an empty state file was written, %v", err)
	}
	before := "http://before"
	stateFile.NodeName, stateFile.Revision.Name = "win-a", "1"
	stateFile.Directories.Add(contract.DirTLS)
	stateFile.Directories.Add(strings.ToUpper(contract.DirTLS))
	stateFile.Files.Add(contract.PathKubelet)
	stateFile.TouchVariable("HTTP_PROXY", &before)
	stateFile.TouchVariable("http_proxy", nil) // the second change must not replace the saved value
	stateFile.SetService("kubelet", state.Start{Inputs: "x", NotPID: 7})
	stateFile.Confidential = []byte{0, 1, 0xff}
	if err := stateFile.Save(); err != nil {
		t.Fatal(err)
	}
	again := open(t, f)
	if diff := cmp.Diff(stateFile.State, again.State); diff != "" {
		t.Error(diff)
	}
	if len(again.Directories) != 1 || *again.Environment["http_proxy"].Before != before || !again.Exists() {
		t.Errorf("got %+v", again.State)
	}
	info, err := f.Stat(contract.PathState)
	if err != nil || info.Access != winos.AccessAdministrators {
		t.Errorf("%+v, %v", info, err)
	}
	if err = again.Erase(); err != nil || open(t, f).Exists() {
		t.Errorf("the file still exists, %v", err)
	}
}

// full simulates a full disk: every write fails.
type full struct {
	winos.Files
	isFull bool
}

func (f *full) Create(path string, access winos.Access) (io.WriteCloser, error) {
	if f.isFull {
		return nil, winos.ErrNoSpace
	}
	return f.Files.Create(path, access)
}

func TestAChangeThatCanNotBeMadeOrWrittenIsUndone(t *testing.T) {
	t.Parallel()
	f := &full{Files: stateFiles(t)}
	stateFile := open(t, f)
	stateFile.Revision.Name, stateFile.Verified = "1", true
	stateFile.SetService("kubelet", state.Start{Inputs: "x"})
	stateFile.TouchVariable("HTTP_PROXY", nil)
	if err := stateFile.Save(); err != nil {
		t.Fatal(err)
	}
	before := open(t, f).State
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		isFull bool
		why    error
	}{"the disk is full": {true, winos.ErrNoSpace}, "the change fails": {false, refused}} {
		f.isFull = c.isFull
		err := stateFile.Change(func() error {
			stateFile.Revision.Name, stateFile.Verified = "2", false
			stateFile.Files.Add(contract.PathKubelet)
			stateFile.SetService("kubelet", state.Start{})
			stateFile.SetService("containerd", state.Start{})
			stateFile.NoteVariable("HTTP_PROXY", "boot-7", true)
			if c.isFull {
				return nil
			}
			return refused
		})
		if !errors.Is(err, c.why) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(before, stateFile.State); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestADamagedStateFileCountsAsNone(t *testing.T) {
	t.Parallel()
	f := stateFiles(t)
	if err := winos.WriteFile(f, contract.PathState, strings.NewReader(`{"nodeName": 7`),
		winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	if stateFile := open(t, f); stateFile.Exists() || stateFile.NodeName != "" {
		t.Errorf("got %+v", stateFile.State)
	}
}

func TestServicesInheritADeletedVariableUntilTheNextBoot(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		variable state.Variable
		boot     string
		want     bool
	}{
		"set in this boot":           {state.Variable{SetIn: "boot-7"}, "boot-7", false},
		"set in an earlier boot":     {state.Variable{SetIn: "boot-6"}, "boot-7", true},
		"removed in this boot":       {state.Variable{RemovedIn: "boot-7"}, "boot-7", true},
		"removed in an earlier boot": {state.Variable{RemovedIn: "boot-6"}, "boot-7", false},
		"there before we touched it": {state.Variable{}, "boot-7", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := c.variable.IsInherited(c.boot); got != c.want {
				t.Errorf("is inherited: %t", got)
			}
		})
	}
	var stateFile state.State
	stateFile.TouchVariable("HTTP_PROXY", nil)
	stateFile.NoteVariable("HTTP_PROXY", "boot-6", true)
	stateFile.NoteVariable("HTTP_PROXY", "boot-7", false)
	stateFile.NoteVariable("HTTP_PROXY", "boot-7", true)
	if v := stateFile.Environment["http_proxy"]; v.SetIn != "boot-6" || v.RemovedIn != "" {
		t.Errorf("the variable was set again before a reboot: %+v; the service manager still has the old one", v)
	}
}
