package sealed_test

import (
	"bytes"
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/sealed"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func machine(t *testing.T) *sim.Machine {
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
	return m
}

func digest(digit string) string { return strings.Repeat(digit, 64) }

func TestWhatIsKeptComesBackAndNobodyElseCanReadIt(t *testing.T) {
	t.Parallel()
	m := machine(t)
	v := sealed.New(m.Host())
	secret := []byte("a password")
	for range 2 {
		if err := v.Keep(t.Context(), digest("a"), secret); err != nil {
			t.Fatal(err)
		}
	}
	got, err := v.Get(t.Context(), digest("a"))
	if err != nil || !bytes.Equal(got, secret) {
		t.Errorf("%q, %v", got, err)
	}
	path := contract.DirSealed + `\` + digest("a")
	for _, p := range []string{path, contract.DirSealed} {
		if info, err := m.Host().Files.Stat(p); err != nil || info.Access != winos.AccessAdministrators {
			t.Errorf("%s: %+v, %v", p, info, err)
		}
	}
	onDisk, err := winos.ReadFile(m.Host().Files, path)
	if err != nil || bytes.Contains(onDisk, secret) {
		t.Errorf("on disk: %q, %v", onDisk, err)
	}
	// Under another digest's name it is not taken for that.
	if err = m.Host().Files.Rename(path, contract.DirSealed+`\`+digest("b")); err != nil {
		t.Fatal(err)
	}
	if _, err = v.Get(t.Context(), digest("b")); !errors.Is(err, winos.ErrNotSealedHere) {
		t.Errorf("under another name: %v", err)
	}
	if _, err = v.Get(t.Context(), digest("a")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("what was moved away: %v", err)
	}
	if _, err = v.Get(t.Context(), `..\wicd-state.json`); err == nil {
		t.Error("a name that is no digest is taken")
	}
}

func TestSweepKeepsWhatIsNamed(t *testing.T) {
	t.Parallel()
	m := machine(t)
	v := sealed.New(m.Host())
	if err := v.Sweep(); err != nil {
		t.Errorf("without a directory: %v", err)
	}
	for _, d := range []string{"a", "b", "c"} {
		if err := v.Keep(t.Context(), digest(d), []byte(d)); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Sweep(digest("b"), ""); err != nil {
		t.Fatal(err)
	}
	entries, err := m.Host().Files.List(contract.DirSealed)
	if err != nil || len(entries) != 1 {
		t.Errorf("left are %v, %v", entries, err)
	}
	if _, err = v.Get(t.Context(), digest("b")); err != nil {
		t.Error(err)
	}
}
