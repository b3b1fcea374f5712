package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// toolchain is the go command for Windows, without settings of the caller that would change the output.
type toolchain struct {
	root   string
	stderr io.Writer
}

// goTool prepares a go command in a directory below the root.
func (t toolchain) goTool(ctx context.Context, dir string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = filepath.Join(t.root, dir)
	cmd.Env = append(os.Environ(), "GOOS=windows", "GOARCH=amd64", "GOAMD64=v1", "CGO_ENABLED=0", "GOFLAGS=",
		"GOWORK=off")
	cmd.Stderr = t.stderr
	return cmd
}

// version returns the version of a module that a directory's module pins.
func (t toolchain) version(ctx context.Context, dir, module string) (pinned, error) {
	output, err := t.goTool(ctx, dir, "list", "-mod=readonly", "-m", "-json", module).Output()
	if err != nil {
		return pinned{}, fmt.Errorf("asking for the pinned version of %s: %w", module, err)
	}
	var p pinned
	if err = json.Unmarshal(output, &p); err != nil {
		return pinned{}, fmt.Errorf("reading the pinned version of %s: %w", module, err)
	}
	return p, nil
}

// build writes the executable of a component to a file.
func (t toolchain) build(ctx context.Context, c component, v pinned, to string) error {
	cmd := t.goTool(ctx, c.Dir, "build", "-mod=readonly", "-trimpath", "-buildvcs=false",
		"-gcflags=all=-dwarf=false", // as in the Makefile, so that the build cache is used
		"-ldflags", linkerFlags(c.Stamp(v)), "-o", to, c.Package)
	cmd.Stdout = t.stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s: %w", c.Package, err)
	}
	return nil
}

// linkerFlags returns flags that omit symbol tables and set variables, always in the same order.
func linkerFlags(stamp map[string]string) string {
	flags := []string{"-s", "-w"}
	for _, name := range slices.Sorted(maps.Keys(stamp)) {
		flags = append(flags, "-X", name+"="+stamp[name])
	}
	return strings.Join(flags, " ")
}

// standardLibrary returns the directory and the version of the Go distribution.
func (t toolchain) standardLibrary(ctx context.Context) (dir, version string, err error) {
	output, err := t.goTool(ctx, ".", "env", "GOROOT", "GOVERSION").Output()
	if err != nil {
		return "", "", fmt.Errorf("asking for the Go distribution: %w", err)
	}
	dir, version, _ = strings.Cut(strings.TrimSpace(string(output)), "\n")
	return dir, version, nil
}

// sourceOf returns the source directories of modules that a directory's module pins, by module path.
func (t toolchain) sourceOf(ctx context.Context, dir string, paths []string) (map[string]string, error) {
	output, err := t.goTool(ctx, dir, append([]string{"list", "-mod=readonly", "-m", "-json"}, paths...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("finding the source of modules: %w", err)
	}
	found := map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(output)); ; {
		var m struct{ Path, Dir string }
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			return found, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading the source of modules: %w", err)
		}
		found[m.Path] = m.Dir
	}
}
