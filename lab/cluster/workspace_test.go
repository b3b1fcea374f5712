package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestAnAbandonedDataDirectoryIsSwept(t *testing.T) {
	t.Parallel()
	if !fileLocksWork {
		t.Log("nothing is swept where file locks don't tell")
	}
	folder := t.TempDir()
	made := func(name string) *workspace {
		w := &workspace{dir: filepath.Join(folder, name)}
		if err := os.Mkdir(w.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if _, err := w.write("kubeconfig", []byte("x")); err != nil {
			t.Fatal(err)
		}
		return w
	}
	abandoned, living, foreign := made(workspacePrefix+"1"), made(workspacePrefix+"2"), made("other-3")
	made(workspacePrefix + "kept")
	func() {
		syscall.ForkLock.RLock() // otherwise, a program that another test starts inherits the locked file for a moment
		defer syscall.ForkLock.RUnlock()
		for _, w := range []*workspace{abandoned, living, foreign} {
			if err := w.takeLock(); err != nil {
				t.Fatal(err)
			}
		}
		abandoned.lock.Close() // the kernel does the same for a killed lab
		foreign.lock.Close()
	}()
	defer living.lock.Close()

	sweepAbandoned(folder)

	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, entry := range entries {
		left = append(left, entry.Name())
	}
	want := "other-3 wmco-lab-2 wmco-lab-kept"
	if !fileLocksWork {
		want = "other-3 wmco-lab-1 wmco-lab-2 wmco-lab-kept"
	}
	if got := strings.Join(left, " "); got != want {
		t.Errorf("the remaining directories are %s, want %s", got, want)
	}
	if err := living.remove(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(living.dir); !os.IsNotExist(err) {
		t.Errorf("the owner did not remove the directory: %v", err)
	}
}

func TestANamedDataDirectory(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	full := filepath.Join(top, "full")
	if err := os.MkdirAll(filepath.Join(full, "precious"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := openWorkspace(full, false); err == nil || !strings.Contains(err.Error(), "is not empty") {
		t.Errorf("a directory with content was accepted: %v", err)
	}
	for name, keep := range map[string]bool{"kept": true, "not kept": false} {
		w, err := openWorkspace(filepath.Join(top, name), keep)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.remove(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(w.dir); (err == nil) != keep {
			t.Errorf("%s: %v", name, err)
		}
	}
}
