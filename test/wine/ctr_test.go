//go:build linux

package wine_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/wine"
)

// build builds a program that only tests need, once, and returns its path.
func (s *stage) build(t *testing.T, name string, do func(ctx context.Context, to string) error) string {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := do(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// ctr runs containerd's real client on a host, and returns its output.
func (s *stage) ctr(t *testing.T, h *fleet.Host, arguments ...string) string {
	t.Helper()
	out, said, code := s.tryCtr(t, h, arguments...)
	if code != 0 {
		t.Fatalf("ctr %v ended with %d: %s", arguments, code, said)
	}
	return out
}

// tryCtr also returns standard error, which includes messages of Wine.
func (s *stage) tryCtr(t *testing.T, h *fleet.Host, arguments ...string) (out, said string, code int) {
	t.Helper()
	exe := s.build(t, "ctr.exe", func(ctx context.Context, to string) error {
		return wine.Build(ctx, wine.Program{Module: "payload/containerd",
			Package: "github.com/containerd/containerd/v2/cmd/ctr"}, to)
	})
	return run(t, h, exe, append([]string{"--debug", "--timeout", callTime.String(), "--namespace", "k8s.io"},
		arguments...)...)
}

// kubeletPulls requests an image from containerd as kubelet does.
func (s *stage) kubeletPulls(t *testing.T, h *fleet.Host, reference string) (said string, code int) {
	t.Helper()
	exe := s.build(t, "cri.exe", func(ctx context.Context, to string) error {
		return wine.Build(ctx, wine.Program{Package: "./lab/wine/cri"}, to)
	})
	_, said, code = run(t, h, exe, reference)
	return said, code
}

// hasFailed reports whether ctr.exe printed an error. This is its last action before it exits with 1. In this case, its
// request has failed, and must not be repeated.
func hasFailed(said string) bool {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	return strings.HasPrefix(lines[len(lines)-1], "ctr: ")
}

// run runs a program of this machine on a host.
func run(t *testing.T, h *fleet.Host, exe string, arguments ...string) (out, said string, code int) {
	t.Helper()
	path := place(t, h, exe)
	for try := 1; ; try++ {
		out, said, code, err := attempt(t.Context(), machine(h), path, arguments)
		switch {
		case err == nil:
			return out, said, code
		case errors.Is(err, context.DeadlineExceeded) && hasFailed(said):
			t.Logf("%s %v printed its result, but did not exit within %s", path, arguments, clientTime)
			return out, said, 1
		case try == starts || !errors.Is(err, context.DeadlineExceeded):
			t.Fatalf("%v; it wrote %.1000q and said: %s", err, out, said)
		}
		// On a busy machine, one of a thousand runs of ctr.exe does not exit, and its runtime prints no message. If
		// containerd does not answer a call, ctr.exe exits with an error, and the test fails. Only if ctr.exe exceeds
		// even its own time limit, the test starts it again. This is safe, because ctr.exe is not shipped and its
		// request can be repeated.
		t.Logf("try %d: %s %v did not end within %s, and is started again; it wrote %.1000q and said: %s", try, path,
			arguments, clientTime, out, said)
	}
}

const (
	// callTime is how long containerd may take to answer ctr.exe. On an idle machine it takes a
	// second.
	callTime = time.Minute
	// clientTime is how long a client of containerd may run. Normally, the client exits by itself after its calls.
	clientTime = callTime + 15*time.Second
	// starts is the maximum number of times that the client is started.
	starts = 3
)

func attempt(ctx context.Context, m *wine.Machine, path string, arguments []string) (out, said string, code int,
	err error) {
	ctx, cancel := context.WithTimeout(ctx, clientTime)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code, err = m.Run(ctx, wine.Command{Program: path, Arguments: arguments, Stdout: &stdout, Stderr: &stderr})
	return stdout.String(), stderr.String(), code, err
}

// place copies a program of this machine to a host, and returns its path there. The program isn't part of a payload, so
// it is copied to the directory of Windows' own programs.
func place(t *testing.T, h *fleet.Host, exe string) string {
	t.Helper()
	path := `C:\windows\` + filepath.Base(exe)
	to := machine(h).Path(path)
	if _, err := os.Stat(to); os.IsNotExist(err) {
		install(t, exe, to)
	}
	return path
}

func install(t *testing.T, from, to string) {
	t.Helper()
	source, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o700)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(target, source); err != nil {
		t.Fatal(err)
	}
	if err = target.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestAClientThatHungAfterItsErrorHasFailed(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]bool{
		"ctr: failed commit on ref \"x\": failed precondition\n":         true,
		"time=\"\" level=debug msg=fetch\nctr: image \"x\": not found\n": true,
		"":                                    false,
		"time=\"\" level=debug msg=\"ctr: \"": false,
		"ctr: not the last\nlevel=debug":      false,
	} {
		if got := hasFailed(said); got != want {
			t.Errorf("%q: %v", said, got)
		}
	}
}
