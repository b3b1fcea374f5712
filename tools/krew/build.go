package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build compiles the plugin for a platform. Nothing of the machine, of the folder or of the checkout is
// in the result: with version control stamps, a binary of a clone would differ from one of an archive.
func build(ctx context.Context, o options, platform, into string) (string, error) {
	system, arch, _ := strings.Cut(platform, "/")
	binary := filepath.Join(into, "kubectl-windows_"+system+"_"+arch)
	if system == "windows" {
		binary += ".exe"
	}
	binary, err := filepath.Abs(binary)
	if err != nil {
		return "", err
	}
	compile := exec.CommandContext(ctx, "go", "build", //nolint:gosec // who builds names what is made
		"-mod=readonly", "-trimpath", "-buildvcs=false",
		"-gcflags=all=-dwarf=false", // which the linker drops anyway; the operator is compiled with the same
		"-ldflags=-s -w -X github.com/windows-nodes/wmco/internal/version.version="+o.version,
		"-o", binary, "./cmd/kubectl-windows")
	compile.Dir = o.root
	compile.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOWORK=off",
		"GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")
	if output, err := compile.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w\n%s", err, output)
	}
	return binary, nil
}
