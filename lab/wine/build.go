//go:build linux

package wine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// Program is a program of this repository, for Windows.
type Program struct {
	// Package is its folder, such as ./cmd/wicd. Module is the folder of its nested module, or empty for the main
	// module.
	Package, Module string
	// Flags are linker flags.
	Flags string
}

// Build builds a program for Windows into a file. Repeated builds are fast because of Go's build cache.
func Build(ctx context.Context, program Program, to string) error {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return fmt.Errorf("finding the sources: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"build", "-mod=readonly", "-buildvcs=false"},
		cluster.CompileFlags(), []string{"-ldflags", "-s -w " + program.Flags, "-o", to, program.Package})...)
	cmd.Dir = filepath.Join(root, program.Module)
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "CGO_ENABLED=0", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s for Windows: %w: %s", program.Package, err, output)
	}
	return nil
}

// buildKeeper builds the keeper. It renames the complete program into place, so that no host gets an incomplete copy.
func buildKeeper(ctx context.Context, cache string) (string, error) {
	path := filepath.Join(cache, "keeper.exe")
	partial := fmt.Sprintf("%s.%d.partial", path, os.Getpid())
	defer func() { _ = os.Remove(partial) }()
	if err := Build(ctx, Program{Package: "./lab/wine/keeper"}, partial); err != nil {
		return "", err
	}
	if err := os.Rename(partial, path); err != nil {
		return "", fmt.Errorf("installing the keeper: %w", err)
	}
	return path, nil
}
