//go:build linux

package wine

import (
	"context"
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// sources are what a prefix needs beside Wine's own files.
//
//go:embed native/*.c
var sources embed.FS

// native is one file of system32 that is compiled from C.
type native struct {
	source, file string
	flags        []string
}

func natives() []native {
	return []native{
		{"bcryptprimitives.c", "bcryptprimitives.dll", []string{"-shared", "-ladvapi32"}},
		{"hns.c", "computenetwork.dll", []string{"-shared", "-lole32"}},
		{"hns.c", "vmcompute.dll", []string{"-shared", "-lole32"}},
		{"powershell.c", `WindowsPowerShell/v1.0/powershell.exe`, nil},
	}
}

// compile makes all of them below a directory.
func (t tools) compile(ctx context.Context, system32 string) error {
	scratch, err := os.MkdirTemp("", "wmco-wine-")
	if err != nil {
		return fmt.Errorf("making a directory for C sources: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	for _, n := range natives() {
		content, err := sources.ReadFile("native/" + n.source)
		if err != nil {
			return fmt.Errorf("reading %s: %w", n.source, err)
		}
		source, target := filepath.Join(scratch, n.source), filepath.Join(system32, n.file)
		if err = os.WriteFile(source, content, 0o600); err != nil {
			return fmt.Errorf("writing %s: %w", n.source, err)
		}
		if err = os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("making the directory of %s: %w", n.file, err)
		}
		// What Wine put there may be a link to a file that others use.
		if err = os.Remove(target); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("replacing %s: %w", n.file, err)
		}
		arguments := append([]string{"-O2", "-Wall", "-Werror", "-s", "-o", target, source}, n.flags...)
		if output, err := exec.CommandContext(ctx, t.compiler, arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("compiling %s: %w: %s", n.source, err, output)
		}
	}
	return nil
}
