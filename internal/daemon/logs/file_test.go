package logs_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/logs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
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

// clock returns a clock that advances by a second at each read.
func clock() func() time.Time {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	return func() time.Time { now = now.Add(time.Second); return now }
}

func open(f winos.Files, size int64) *logs.Writer {
	w := logs.Open(f, path, clock())
	w.Limit(contract.Log{MaxSize: size})
	return w
}

// older lists the older log files, newest first.
func older(t *testing.T, f winos.Files) (paths []string) {
	t.Helper()
	entries, err := f.List(`C:\logs`)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name != "wicd.log" {
			paths = append(paths, `C:\logs\`+e.Name)
		}
	}
	slices.Sort(paths)
	slices.Reverse(paths)
	return paths
}

func TestA16_TheLogHasABoundedSize(t *testing.T) {
	t.Parallel()
	_, f := files(t)
	w := open(f, 100)
	for n := range 200 {
		if _, err := fmt.Fprintf(w, "line %04d\n", n); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
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
	before, err := winos.ReadFile(f, older(t, f)[0])
	if err != nil || !strings.HasSuffix(string(before), "line 0189\n") {
		t.Errorf("the lines before are %q, %v", before, err)
	}
}

func TestA16_LimitsChangeWhileItIsWritten(t *testing.T) {
	t.Parallel()
	_, f := files(t)
	w := open(f, 0)
	w.Limit(contract.Log{MaxSize: 20, MaxFiles: 2})
	for range 20 {
		_, _ = io.WriteString(w, "0123456789\n")
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if got := older(t, f); len(got) != 2 {
		t.Errorf("older files: %v", got)
	}
}

func TestRestartsPushNoLineOut(t *testing.T) {
	t.Parallel()
	_, f := files(t)
	now, want := clock(), ""
	for n := range 12 {
		line := fmt.Sprintf("start %d\n", n)
		want += line
		w := logs.Open(f, path, now)
		_, _ = io.WriteString(w, line)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if content, err := winos.ReadFile(f, path); err != nil || string(content) != want || len(older(t, f)) != 0 {
		t.Errorf("%q, %v, beside %v", content, err, older(t, f))
	}
}

func TestARestartMovesALogOnThatIsHalfFull(t *testing.T) {
	t.Parallel()
	_, f := files(t)
	full := strings.Repeat("0123456789abcde\n", logs.DefaultSize/32+1)
	for _, text := range []string{full, "second\n"} {
		w := open(f, 0)
		_, _ = io.WriteString(w, text)
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]string{path: "second\n", older(t, f)[0]: full} {
		if content, err := winos.ReadFile(f, path); err != nil || string(content) != want {
			t.Errorf("%s has %d bytes, want %d: %v", path, len(content), len(want), err)
		}
	}
}

func TestSomebodyWhoReadsTheLogLosesNoLine(t *testing.T) {
	t.Parallel()
	m, f := files(t)
	w := open(f, 20)
	_, _ = io.WriteString(w, "before, 15 bytes\n")
	reader, err := m.OpenFile(path, os.O_RDONLY) // prevents renames, as kubelet's log endpoint does
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "while it is read\n")
	if err = reader.Close(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(w, "afterwards, again\n")
	if err = w.Close(); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, p := range append(older(t, f), path) {
		content, err := winos.ReadFile(f, p)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	for _, line := range []string{"before", "while it is read", "afterwards"} {
		if strings.Count(all.String(), line) != 1 {
			t.Errorf("%q is there %d times", line, strings.Count(all.String(), line))
		}
	}
	if content, err := winos.ReadFile(f, path); err != nil || string(content) != "afterwards, again\n" {
		t.Errorf("the log is %q, %v", content, err)
	}
}

func TestALogThatCanNotBeWrittenStopsNobody(t *testing.T) {
	t.Parallel()
	m, f := files(t)
	w := open(f, 10)
	m.SetPathFault(path, winos.ErrDenied)
	for range 5 {
		if n, err := io.WriteString(w, "0123456789"); n != 10 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	m.SetPathFault(path, nil)
	if _, err := io.WriteString(w, "back"); err != nil {
		t.Error(err)
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if content, err := winos.ReadFile(f, path); err != nil || !strings.HasSuffix(string(content), "\nback") ||
		!strings.HasPrefix(string(content), "\nlines missing here: 4 (renaming log "+path) {
		t.Errorf("%q, %v", content, err)
	}
}

func TestAFullDiskCostsLinesAndNoOlderFile(t *testing.T) {
	t.Parallel()
	m, f := files(t)
	w := open(f, 100)
	lines := func(from, to int) {
		for n := from; n < to; n++ {
			if _, err := fmt.Fprintf(w, "line %04d\n", n); err != nil {
				t.Error(err)
			}
		}
	}
	lines(0, 55)
	before := older(t, f)
	m.SetDiskFree(5)
	lines(55, 75)
	if got := older(t, f); len(before) != 5 || !slices.Equal(got, before) {
		t.Errorf("older files while the disk is full: %v, before: %v", got, before)
	}
	m.SetDiskFree(1 << 20)
	_, _ = io.WriteString(w, "back\n")
	_ = w.Close() // Close also returns the error of the full disk
	if got := older(t, f); !slices.Equal(got, before) {
		t.Errorf("older files after there is room again: %v, before: %v", got, before)
	}
	content, err := winos.ReadFile(f, path)
	_, rest, _ := strings.Cut(string(content), "line 0054\n")
	if err != nil || !strings.HasPrefix(rest, "line \nlines missing here: 20 (") || !strings.HasSuffix(rest, ")\nback\n") {
		t.Errorf("%q, %v", content, err)
	}
}

func TestALogThatCanNotBeOpenedBeginsOnceItCan(t *testing.T) {
	t.Parallel()
	_, f := files(t)
	if err := f.Remove(`C:\logs`); err != nil {
		t.Fatal(err)
	}
	w := open(f, 0)
	for _, line := range []string{"first\n", "second\n"} {
		if n, err := io.WriteString(w, line); n != len(line) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if err := f.MkdirAll(`C:\logs`, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"third\n", "fourth\n"} {
		if _, err := io.WriteString(w, line); err != nil {
			t.Error(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	content, err := winos.ReadFile(f, path)
	why, rest, _ := strings.Cut(strings.TrimPrefix(string(content), "\n"), "\n")
	if err != nil || rest != "third\nfourth\n" || !strings.HasPrefix(why, "lines missing here: 2 (creating log ") {
		t.Errorf("%q, %v", content, err)
	}
}
