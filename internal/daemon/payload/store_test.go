package payload_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func blob(digit string, size int64) contract.Blob {
	return contract.Blob{Digest: strings.Repeat(digit, 64), Size: size}
}

func newStore(t *testing.T) (*payload.Store, winos.Files) {
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
	files := m.Host().Files
	if err = files.MkdirAll(contract.DirStore, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	return payload.NewStore(files), files
}

func put(t *testing.T, s *payload.Store, b contract.Blob, content string, commit bool) {
	t.Helper()
	p, err := s.Create(b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.WriteString(p, content); err != nil {
		t.Fatal(err)
	}
	end := p.Discard
	if commit {
		end = p.Commit
	}
	if err = end(); err != nil {
		t.Fatal(err)
	}
}

func TestMissingGoesByNameAndSize(t *testing.T) {
	t.Parallel()
	s, files := newStore(t)
	whole, short, discarded, never := blob("a", 3), blob("b", 3), blob("c", 3), blob("d", 3)
	put(t, s, whole, "abc", true)
	put(t, s, short, "ab", true)
	put(t, s, discarded, "abc", false)
	missing, err := s.Missing([]contract.Blob{whole, short, discarded, never, never})
	if err != nil || len(missing) != 3 || missing[0] != short || missing[1] != discarded || missing[2] != never {
		t.Errorf("missing %v, %v", missing, err)
	}
	if entries, err := files.List(contract.DirStore); err != nil || len(entries) != 2 {
		t.Errorf("the store has %v, %v", entries, err)
	}
	if err = s.Drop(whole.Digest); err != nil {
		t.Fatal(err)
	}
	if missing, err = s.Missing([]contract.Blob{whole}); err != nil || len(missing) != 1 {
		t.Errorf("after a drop: %v, %v", missing, err)
	}
	_, err = s.Open(whole.Digest)
	if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonPayloadIncomplete {
		t.Errorf("opening a missing blob: %v", err)
	}
}

func TestABlobThatAScannerReadsGetsItsNameAsSoonAsItIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, files := newStore(t)
		b := blob("a", 3)
		p, err := s.Create(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = io.WriteString(p, "abc"); err != nil {
			t.Fatal(err)
		}
		reader, err := files.Open(contract.DirStore + `\` + b.Digest + ".tmp")
		if err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		time.AfterFunc(50*time.Millisecond, func() { closed <- reader.Close() })
		if err = errors.Join(p.Commit(), <-closed); err != nil {
			t.Fatal(err)
		}
		if missing, err := s.Missing([]contract.Blob{b}); err != nil || len(missing) > 0 {
			t.Errorf("missing %v, %v", missing, err)
		}
	})
}

// scanned simulates a virus scanner that holds a file open until a certain time.
type scanned struct {
	winos.Files
	path  string
	until time.Time
}

func (s scanned) Open(path string) (io.ReadCloser, error) {
	if path == s.path && time.Now().Before(s.until) {
		return nil, fmt.Errorf("opening %s: %w", path, winos.ErrInUse)
	}
	return s.Files.Open(path)
}

func TestAFileThatAScannerReadsIsAdoptedAsSoonAsItIsClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, files := newStore(t)
		const self, content = `C:\Temp\wicd.exe`, "MZ, and more"
		if err := files.MkdirAll(`C:\Temp`, winos.AccessAdministrators); err != nil {
			t.Fatal(err)
		}
		if err := winos.WriteFile(files, self, strings.NewReader(content), winos.AccessAdministrators); err != nil {
			t.Fatal(err)
		}
		wanted := []contract.Blob{{Digest: contract.Digest([]byte(content)), Size: int64(len(content))}}
		s := payload.NewStore(scanned{files, self, time.Now().Add(300 * time.Millisecond)})
		if err := s.Adopt(t.Context(), self, wanted); err != nil {
			t.Fatal(err)
		}
		if missing, err := s.Missing(wanted); err != nil || len(missing) > 0 {
			t.Errorf("missing %v, %v", missing, err)
		}
	})
}

func TestWhatAnInterruptedTransferLeftIsRemovedOnceItIsOld(t *testing.T) {
	t.Parallel()
	s, files := newStore(t)
	for _, name := range []string{strings.Repeat("a", 64), strings.Repeat("b", 64) + ".tmp",
		strings.Repeat("c", 64) + ".fetched.tmp", "another.tmp"} {
		if err := winos.WriteFile(files, contract.DirStore+`\`+name, strings.NewReader("MZ"),
			winos.AccessAdministrators); err != nil {
			t.Fatal(err)
		}
	}
	p, err := s.Create(blob("d", 3))
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Sweep(nil, time.Now().Add(-time.Hour)); n != 0 || err != nil {
		t.Errorf("%d new files were removed, %v", n, err)
	}
	if n, err := s.Sweep(nil, time.Now().Add(time.Hour)); n != 3 || !errors.Is(err, winos.ErrInUse) {
		t.Errorf("%d old files were removed, want all except the file that is being written: %v", n, err)
	}
	if err = p.Discard(); err != nil {
		t.Fatal(err)
	}
	if entries, err := files.List(contract.DirStore); err != nil || len(entries) != 1 {
		t.Errorf("the store has %v, %v", entries, err)
	}
}

func TestOnlyADigestBecomesAPath(t *testing.T) {
	t.Parallel()
	s, _ := newStore(t)
	for _, digest := range []string{"", "abc", strings.Repeat("A", 64), `..\..\Windows\System32\drivers\etc\hosts`,
		strings.Repeat("a", 63) + `\`} {
		if _, err := s.Create(contract.Blob{Digest: digest}); err == nil {
			t.Errorf("Create accepts %q", digest)
		}
		if _, err := s.Open(digest); err == nil {
			t.Errorf("Open accepts %q", digest)
		}
		if _, err := s.Missing([]contract.Blob{{Digest: digest}}); err == nil {
			t.Errorf("Missing accepts %q", digest)
		}
		if err := s.Drop(digest); err == nil {
			t.Errorf("Drop accepts %q", digest)
		}
	}
}
