package sim_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/test/winostest"
)

// FuzzPath checks one of two results for each path: either every operation refuses the path, or the path is the path of
// exactly one object. The name of this object must be the name in the path.
func FuzzPath(f *testing.F) {
	for _, path := range winostest.BadPaths() {
		f.Add(path)
	}
	for _, name := range winostest.BadNames() {
		f.Add(`C:\` + name)
	}
	for _, path := range []string{`C:\`, `c:\k\kubelet.exe`, `C:\ProgramData\ssh\x`, `Q:\x`, `C:\ÄÖ\ß\ſ\K`,
		`C:\Users\Public`, `C:\` + strings.Repeat(`y\`, 200) + `z`} {
		f.Add(path)
	}
	f.Fuzz(func(t *testing.T, path string) {
		m := machine(t, sim.Options{})
		files := m.Host().Files
		err := files.MkdirAll(path, winos.AccessInherit)
		if contract.CheckPath(path) == nil && errors.Is(err, winos.ErrInvalidName) {
			t.Errorf("a manifest may contain %q, but the machine refuses it: %v", path, err)
		}
		if errors.Is(err, winos.ErrInvalidName) {
			refused(t, files, path)
			return
		}
		if err != nil {
			if path[0]&^0x20 == 'C' && !strings.Contains(strings.ToLower(path), ".exe") {
				t.Errorf("creating %q: %v", path, err)
			}
			return
		}
		info, err := files.Stat(path)
		noError(t, err)
		if !info.Dir {
			t.Errorf("%q is not a directory", path)
		}
		cut := strings.LastIndex(path, `\`)
		dir, name := path[:max(cut, len(`C:\`))], path[cut+1:]
		if name == "" {
			return
		}
		listed, err := files.List(dir)
		noError(t, err)
		if !slices.ContainsFunc(listed, func(i winos.FileInfo) bool { return strings.EqualFold(i.Name, name) }) {
			t.Errorf("%q is not listed in %q", name, dir)
		}
		upper, err := files.Stat(strings.ToUpper(path))
		if err != nil || upper != info {
			t.Errorf("in upper case, %q names another object: %v", path, err)
		}
	})
}

func refused(t *testing.T, files winos.Files, path string) {
	t.Helper()
	_, open := files.Open(path)
	_, create := files.Create(path, winos.AccessAdministrators)
	_, stat := files.Stat(path)
	_, list := files.List(path)
	for _, err := range []error{open, create, stat, list, files.Remove(path), files.Rename(path, `C:\x`),
		files.Rename(`C:\Users`, path)} {
		isError(t, err, winos.ErrInvalidName)
	}
}
