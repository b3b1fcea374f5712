//go:build linux

package wine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// Once is a Windows program on this machine that runs on a dedicated host.
type Once struct {
	// Path is the exe on this machine. TestData is a directory that is copied to testdata in the working directory. If
	// it is empty, nothing is copied.
	Path, TestData string
	Arguments      []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// RunOnce creates a host, runs the program on it, removes the host, and returns the exit code. If ctx ends, it kills
// the program and returns a *HungError. Stdout and Stderr keep the output that the program wrote before.
func (t *Template) RunOnce(ctx context.Context, once Once) (exitCode int, err error) {
	m, err := t.Start(ctx, HostOptions{Hostname: "WIN-ONCE", Address: netip.AddrFrom4([4]byte{10, 33, 0, 2})})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	exe := Home + `\` + filepath.Base(once.Path)
	if !strings.EqualFold(filepath.Ext(exe), ".exe") {
		exe += ".exe"
	}
	if err = copyFile(once.Path, m.Path(exe), 0o700); err != nil {
		return 0, fmt.Errorf("copying the program to the host: %w", err)
	}
	if once.TestData != "" {
		if err = os.CopyFS(m.Path(Home+`\testdata`), os.DirFS(once.TestData)); err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("copying test data to the host: %w", err)
		}
	}
	return m.Run(ctx, Command{Program: exe, Arguments: once.Arguments, Stdin: once.Stdin, Stdout: once.Stdout,
		Stderr: once.Stderr})
}
