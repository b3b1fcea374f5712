package winostest

import (
	"io/fs"
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func accessCases() []testCase {
	return []testCase{
		{name: "a file is restricted to administrators whatever rights it had", needs: []Ability{FileAccess},
			run: accessFile},
		{name: "a directory is restricted and what it holds stays", needs: []Ability{FileAccess},
			run: accessDirectory},
		{name: "what does not exist can not be restricted", run: accessMissing},
	}
}

func (m machine) access(t *testing.T, path string) winos.Access {
	t.Helper()
	info, err := m.Host.Files.Stat(path)
	noError(t, err)
	return info.Access
}

func accessFile(m machine) {
	t := m.t
	path := m.dir + `\loose.txt`
	m.write(t, path, "content")
	if m.access(t, path) != winos.AccessInherit {
		t.Fatal("a new file must inherit the rights of its directory")
	}
	for range 2 {
		noError(t, m.Host.Files.Restrict(path))
		if m.access(t, path) != winos.AccessAdministrators {
			t.Error("users other than administrators can open the file")
		}
	}
	if got := m.read(t, path); got != "content" {
		t.Errorf("the file contains %q", got)
	}
	noError(t, m.Host.Files.Remove(path))
}

func accessDirectory(m machine) {
	t := m.t
	dir := m.dir + `\loose`
	mkdir(t, m, dir)
	m.write(t, dir+`\inside.txt`, "content")
	for range 2 {
		noError(t, m.Host.Files.Restrict(dir))
		if m.access(t, dir) != winos.AccessAdministrators {
			t.Error("users other than administrators can open the file")
		}
	}
	if got := m.read(t, dir+`\inside.txt`); got != "content" {
		t.Errorf("the file in the directory contains %q", got)
	}
	m.write(t, dir+`\new.txt`, "new")
	noError(t, m.Host.Files.RemoveAll(dir))
}

func accessMissing(m machine) {
	t := m.t
	isError(t, "restricting", m.Host.Files.Restrict(m.dir+`\nothing`), fs.ErrNotExist)
}
