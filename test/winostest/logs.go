package winostest

import (
	"io/fs"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func logsCases() []testCase {
	return []testCase{
		{name: "a file is emptied in place", run: logsEmptied},
		{name: "a file that its writer shares with nobody can not be emptied", needs: []Ability{SharingModes},
			run: logsLocked},
		{name: "a file that does not exist can not be emptied", run: logsMissing},
	}
}

func logsEmptied(m machine) {
	t := m.t
	path := m.dir + `\some.log`
	m.write(t, path, "line\n")
	r, err := m.Host.Files.Open(path)
	noError(t, err)
	for range 2 {
		noError(t, m.Host.Logs.Empty(path))
		if got := m.read(t, path); got != "" {
			t.Errorf("the log contains %q", got)
		}
	}
	noError(t, r.Close())
	if m.AppendAs != nil {
		appendLine := m.AppendAs(t, path)
		appendLine("first\n")
		noError(t, m.Host.Logs.Empty(path))
		appendLine("second\n")
		if got := m.read(t, path); got != "second\n" {
			t.Errorf("after the rotation, an appending program's log contains %q", got)
		}
	}
}

func logsLocked(m machine) {
	t := m.t
	path := m.dir + `\some.log`
	w, err := m.Host.Files.Create(path, winos.AccessInherit)
	noError(t, err)
	isError(t, "emptying", m.Host.Logs.Empty(path), winos.ErrInUse)
	noError(t, w.Close())
	noError(t, m.Host.Logs.Empty(path))
}

func logsMissing(m machine) {
	t := m.t
	isError(t, "emptying", m.Host.Logs.Empty(m.dir+`\nothing.log`), fs.ErrNotExist)
}
