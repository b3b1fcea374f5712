package winostest

import (
	"errors"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func isError(t *testing.T, doing string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: the error is %v, want %q", doing, err, want)
	}
}

func mkdir(t *testing.T, m machine, dir string) {
	t.Helper()
	noError(t, m.Host.Files.MkdirAll(dir, winos.AccessInherit))
}

func (m machine) write(t *testing.T, path, content string) {
	t.Helper()
	noError(t, winos.WriteFile(m.Host.Files, path, strings.NewReader(content), winos.AccessInherit))
}

func (m machine) read(t *testing.T, path string) string {
	t.Helper()
	content, err := winos.ReadFile(m.Host.Files, path)
	noError(t, err)
	return string(content)
}

// names returns the names in a directory.
func (m machine) names(t *testing.T, dir string) []string {
	t.Helper()
	infos, err := m.Host.Files.List(dir)
	noError(t, err)
	var names []string
	for _, info := range infos {
		names = append(names, info.Name)
	}
	return names
}
