package logfile_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/agent/logfile"
	"github.com/windows-nodes/wmco/internal/agent/winos"
	"github.com/windows-nodes/wmco/internal/sim"
)

const path = `C:\logs\wicd.log`

func files(t *testing.T) (*sim.Machine, winos.Files) {
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
	if err = m.Host().Files.MkdirAll(`C:\logs`, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	return m, m.Host().Files
}

func TestA16_TheLogHasABoundedSize(t *testing.T) {
	t.Parallel()
	_, f := files(t)
	w, err := logfile.Open(f, path, 100)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		if _, err = fmt.Fprintf(w, "line %04d\n", n); err != nil {
			t.Fatal(err)
		}
	}
	if err = w.Close(); err != nil {
		t.Fatal(err)
	}
	entries, err := f.List(`C:\logs`)
	if err != nil || len(entries) != 6 {
		t.Fatalf("%v, %v", entries, err)
	}
	for _, e := range entries {
		if e.Size > 100 {
			t.Errorf("%s has %d bytes", e.Name, e.Size)
		}
	}
	content, err := winos.ReadFile(f, path)
	if err != nil || !strings.HasSuffix(string(content), "line 0199\n") {
		t.Errorf("the newest lines are %q, %v", content, err)
	}
	older, err := winos.ReadFile(f, path+".1")
	if err != nil || !strings.HasSuffix(string(older), "line 0189\n") {
		t.Errorf("the lines before are %q, %v", older, err)
	}
}

func TestARestartKeepsTheLogBefore(t *testing.T) {
	t.Parallel()
	_, f := files(t)
	for _, line := range []string{"first", "second"} {
		w, err := logfile.Open(f, path, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, line)
		if err = w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{path: "second", path + ".1": "first"} {
		if content, err := winos.ReadFile(f, path); err != nil || string(content) != want {
			t.Errorf("%s: %q, %v", path, content, err)
		}
	}
}

func TestALogThatCanNotBeWrittenStopsNobody(t *testing.T) {
	t.Parallel()
	m, f := files(t)
	w, err := logfile.Open(f, path, 10)
	if err != nil {
		t.Fatal(err)
	}
	m.SetPathFault(path, winos.ErrDenied)
	for range 5 {
		if n, err := io.WriteString(w, "0123456789"); n != 10 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	m.SetPathFault(path, nil)
	if _, err = io.WriteString(w, "back"); err != nil {
		t.Error(err)
	}
	if err = w.Close(); err != nil {
		t.Error(err)
	}
	if content, err := winos.ReadFile(f, path); err != nil || string(content) != "back" {
		t.Errorf("%q, %v", content, err)
	}
}
