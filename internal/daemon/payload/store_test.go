package payload_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
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

// content returns a function that writes a text.
func content(text string) func(w io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, text)
		return err
	}
}

func blobOf(text string) contract.Blob {
	return contract.Blob{Digest: contract.Digest([]byte(text)), Size: int64(len(text))}
}

func TestMissingGoesByNameAndSize(t *testing.T) {
	t.Parallel()
	s, files := newStore(t)
	whole, other, short, broken, never := blobOf("abc"), blobOf("def"), blobOf("ab"), blobOf("xyz"), blob("d", 3)
	for b, err := range map[contract.Blob]error{whole: s.Put(whole, content("abc")), short: s.Put(short, content("ab"))} {
		if err != nil {
			t.Errorf("storing %v: %v", b, err)
		}
	}
	short.Size = 3
	err := s.Put(other, content("abc"))
	if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonPayloadCorrupt {
		t.Errorf("storing other content: %v", err)
	}
	sad := errors.New("the source is sad")
	if err = s.Put(broken, func(io.Writer) error { return sad }); !errors.Is(err, sad) {
		t.Errorf("storing what can't be read: %v", err)
	}
	missing, err := s.Missing([]contract.Blob{whole, short, other, broken, never, never})
	if want := []contract.Blob{short, other, broken, never}; err != nil || !slices.Equal(missing, want) {
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
		b := blobOf("abc")
		closed := make(chan error, 1)
		err := s.Put(b, func(w io.Writer) error {
			reader, err := files.Open(contract.DirStore + `\` + b.Digest + ".tmp")
			if err != nil {
				return err
			}
			time.AfterFunc(50*time.Millisecond, func() { closed <- reader.Close() })
			return content("abc")(w)
		})
		if err = errors.Join(err, <-closed); err != nil {
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
	err := s.Put(blobOf("MZ"), func(w io.Writer) error {
		if n, err := s.Sweep(nil, time.Now().Add(-time.Hour)); n != 0 || err != nil {
			t.Errorf("%d new files were removed, %v", n, err)
		}
		if n, err := s.Sweep(nil, time.Now().Add(time.Hour)); n != 3 || !errors.Is(err, winos.ErrInUse) {
			t.Errorf("%d old files were removed, want all except the file that is being written: %v", n, err)
		}
		return content("another")(w)
	})
	if p, ok := contract.AsProblem(err); !ok || p.Reason != contract.ReasonPayloadCorrupt {
		t.Errorf("storing other content: %v", err)
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
		if err := s.Put(contract.Blob{Digest: digest}, content("")); err == nil {
			t.Errorf("Put accepts %q", digest)
		}
		if _, err := s.Missing([]contract.Blob{{Digest: digest}}); err == nil {
			t.Errorf("Missing accepts %q", digest)
		}
	}
}
