package apply_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func digestOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

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

func TestContentWithAnotherDigestNeverArrives(t *testing.T) {
	t.Parallel()
	m := machine(t)
	files := m.Host().Files
	stateFile, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	const path = `C:\k\x`
	if err = apply.WriteFile(t.Context(), files, stateFile, path, digestOf("good"),
		strings.NewReader("good")); err != nil {
		t.Fatal(err)
	}
	err = apply.WriteFile(t.Context(), files, stateFile, path, digestOf("better"), strings.NewReader("bad"))
	if !errors.Is(err, apply.ErrDigest) || apply.FileProblem(err).Reason != contract.ReasonPayloadCorrupt {
		t.Errorf("got %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	err = apply.WriteFile(ended, files, stateFile, path, digestOf("better"), strings.NewReader("better"))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got, err := apply.DigestOf(t.Context(), files, path); err != nil || got != digestOf("good") {
		t.Errorf("the file has %s, %v", got, err)
	}
	if there, _ := winos.Exists(files, path+".tmp"); there {
		t.Error("a temporary file is left")
	}
}

// A scanner opens any file for a moment. What is no program has no name to be moved to.
func TestAFileThatIsBeingReadIsReplacedAsSoonAsItIsClosed(t *testing.T) {
	t.Parallel()
	files := machine(t).Host().Files
	const path = `C:\k\kubelet.conf`
	if err := errors.Join(files.MkdirAll(`C:\k`, winos.AccessInherit),
		winos.WriteFile(files, path, strings.NewReader("old"), winos.AccessInherit)); err != nil {
		t.Fatal(err)
	}
	if err := apply.StageFile(t.Context(), files, path, apply.Content{Digest: digestOf("new"),
		Content: strings.NewReader("new")}); err != nil {
		t.Fatal(err)
	}
	reader, err := files.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan error, 1)
	time.AfterFunc(50*time.Millisecond, func() { closed <- reader.Close() })
	if err = errors.Join(apply.CommitFile(files, path, ""), <-closed); err != nil {
		t.Fatal(err)
	}
	if got, err := apply.DigestOf(t.Context(), files, path); err != nil || got != digestOf("new") {
		t.Errorf("it holds %s, %v", got, err)
	}
}

func TestARunningProgramIsMovedAsideAndSweptLater(t *testing.T) {
	t.Parallel()
	m := machine(t)
	files, services := m.Host().Files, m.Host().Services
	stateFile, err := state.Open(files)
	if err != nil {
		t.Fatal(err)
	}
	const path = `C:\k\x.exe`
	write := func(content string) {
		t.Helper()
		if err := apply.WriteFile(t.Context(), files, stateFile, path, digestOf(content),
			strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
	}
	write("MZ 1")
	if err = services.Apply(t.Context(), winos.ServiceConfig{Name: "x", Command: path}); err != nil {
		t.Fatal(err)
	}
	if err = services.Start(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	write("MZ 2")
	write("MZ 3")
	if !slices.Contains(stateFile.Aside, path+".old-1") {
		t.Errorf("aside: %v", stateFile.Aside)
	}
	if err = apply.RemoveAside(files, stateFile); err != nil || len(stateFile.Aside) != 1 {
		t.Errorf("a sweep while it runs: %v, %v", stateFile.Aside, err)
	}
	if err = services.Stop(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	if err = apply.RemoveAside(files, stateFile); err != nil || len(stateFile.Aside) != 0 {
		t.Errorf("a sweep afterwards: %v, %v", stateFile.Aside, err)
	}
	if there, _ := winos.Exists(files, path+".old-1"); there {
		t.Error("the old program is left")
	}
}
