package state_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func files(t *testing.T) winos.Files {
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
	return m.Host().Files
}

func TestTheRootIsOursOnlyWhenNobodyElseCouldWriteIntoIt(t *testing.T) {
	t.Parallel()
	type want struct{ usable, made bool }
	for name, c := range map[string]struct {
		access  winos.Access
		content []string
		want    want
	}{
		"not there":              {-1, nil, want{true, true}},
		"empty, left by a crash": {winos.AccessAdministrators, nil, want{true, true}},
		"with a first state file that was not renamed": {winos.AccessAdministrators, []string{"wicd-state.json.tmp"},
			want{true, true}},
		"empty, but writable for everybody":       {winos.AccessInherit, nil, want{true, true}},
		"with a file, and writable for everybody": {winos.AccessInherit, []string{"x"}, want{false, false}},
		"with a forged state file":                {winos.AccessInherit, []string{"wicd-state.json"}, want{false, false}},
		"with a file, but only administrators'":   {winos.AccessAdministrators, []string{"x"}, want{true, false}},
		"A84: another operator's, of which only administrators have the rights": {winos.AccessAdministrators,
			[]string{`containerd\containerd.exe`, "kubeconfig"}, want{false, false}},
		"another's, and our state file": {winos.AccessAdministrators,
			[]string{`containerd\containerd.exe`, "wicd-state.json"}, want{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := files(t)
			if c.access >= 0 {
				if err := f.MkdirAll(contract.DirK, c.access); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range c.content {
				if err := f.MkdirAll(state.Parent(contract.DirK+`\`+name), c.access); err != nil {
					t.Fatal(err)
				}
				if err := winos.WriteFile(f, contract.DirK+`\`+name, strings.NewReader("{}"),
					winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
			}
			conflict, err := state.Conflict(f)
			if err != nil || (conflict == nil) != c.want.usable {
				t.Errorf("conflict %v, %v", conflict, err)
			}
			stateFile, err := state.Open(f)
			if (err == nil) != c.want.usable {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			if stateFile.Directories.Has(contract.DirK) != c.want.made {
				t.Errorf("the state file has %v", stateFile.Directories)
			}
			info, err := f.Stat(contract.DirK)
			if err != nil || info.Access != winos.AccessAdministrators {
				t.Errorf("%+v, %v", info, err)
			}
		})
	}
}

// The directory contains our store. Only this daemon creates a store, so the directory is ours.
func TestAStateFileThatWasLostIsBegunAnewWithOurDirectoriesInTheRoot(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(f winos.Files) error{
		"deleted": func(f winos.Files) error { return f.Remove(contract.PathState) },
		"damaged": func(f winos.Files) error {
			return winos.WriteFile(f, contract.PathState, strings.NewReader("\x00\x00"), winos.AccessAdministrators)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := files(t)
			stateFile, err := state.Open(f)
			if err == nil {
				err = state.Ensure(f, stateFile, state.Directories()...)
			}
			if err = errors.Join(err, lose(f)); err != nil {
				t.Fatal(err)
			}
			if _, err = state.Open(f); err != nil {
				t.Fatal(err)
			}
			if stateFile, err = state.Read(f); err != nil {
				t.Fatal(err)
			}
			for dir, made := range map[string]bool{contract.DirK: true, contract.DirStore: true,
				contract.DirManifests: true, state.Parent(contract.DirManifests): true, contract.DirTemp: false} {
				if stateFile.Directories.Has(dir) != made {
					t.Errorf("%s is noted: %t", dir, !made)
				}
			}
		})
	}
}

func TestOnlyDirectoriesThatWereNotThereAreNoted(t *testing.T) {
	t.Parallel()
	f := files(t)
	if err := f.MkdirAll(`C:\var\lib`, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	stateFile, err := state.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err = state.Ensure(f, stateFile, state.Directories()...); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range state.Directories() {
		if info, err := f.Stat(dir); err != nil || !info.Dir || info.Access != state.Access(dir) {
			t.Errorf("%s: %+v, %v", dir, info, err)
		}
	}
	for _, dir := range []string{`C:\var`, `C:\var\lib`} {
		if stateFile.Directories.Has(dir) {
			t.Errorf("%s existed before", dir)
		}
	}
	for _, dir := range []string{`C:\var\lib\kubelet`, `C:\k\etc\kubernetes\manifests`, `C:\K\ETC`, `C:\Temp`} {
		if !stateFile.Directories.Has(dir) {
			t.Errorf("%s is not recorded", dir)
		}
	}
	if slices.Index(stateFile.Directories, `C:\var\lib\kubelet`) >
		slices.Index(stateFile.Directories, `C:\var\lib\kubelet\pki`) {
		t.Error("a directory is recorded before its parent")
	}
}

// If users could write to the directory in which CNI plugins store assigned addresses, they could use up all addresses.
func TestOrdinaryUsersDoNotReachWhatCNIPluginsKeep(t *testing.T) {
	t.Parallel()
	f := files(t)
	stateFile, err := state.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	if err = state.Ensure(f, stateFile, state.Directories()...); err != nil {
		t.Fatal(err)
	}
	if info, err := f.Stat(state.DirCNIState); err != nil || info.Access != winos.AccessAdministrators {
		t.Errorf("%+v, %v", info, err)
	}
	if !slices.Contains(state.Private(stateFile), state.DirCNIState) {
		t.Error("the access rights are not restored")
	}
}
