//go:build linux

package wine_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/wine"
)

// build builds a program that only tests need, once, and gives its path.
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

// ctrPath is where ctr.exe lies on a host: no part of a payload, so it is put beside what is Windows' own.
const ctrPath = `C:\windows\ctr.exe`

// ctr runs containerd's real client on a host, and gives what it says.
func (s *stage) ctr(t *testing.T, h *fleet.Host, arguments ...string) string {
	t.Helper()
	out, said, code := s.tryCtr(t, h, arguments...)
	if code != 0 {
		t.Fatalf("ctr %v ended with %d: %s", arguments, code, said)
	}
	return out
}

// tryCtr also gives what went to standard error, where Wine writes, too.
func (s *stage) tryCtr(t *testing.T, h *fleet.Host, arguments ...string) (out, said string, code int) {
	t.Helper()
	exe := s.build(t, "ctr.exe", func(ctx context.Context, to string) error {
		return wine.Build(ctx, wine.Program{Module: "payload/containerd", Package: "github.com/containerd/containerd/v2/cmd/ctr"}, to)
	})
	m := machine(h)
	if _, err := os.Stat(m.Path(ctrPath)); os.IsNotExist(err) {
		install(t, exe, m.Path(ctrPath))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code, err := m.Run(ctx, wine.Command{Program: ctrPath, Arguments: append([]string{"--namespace", "k8s.io"}, arguments...), Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		t.Fatalf("%v; it said: %s", err, &stderr)
	}
	return stdout.String(), stderr.String(), code
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
