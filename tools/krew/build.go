package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// build compiles the plugin for a platform. The result doesn't depend on the machine, the folder or the checkout.
// With version control stamps, a binary from a clone would differ from a binary from an archive of the source.
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
	compile := exec.CommandContext(ctx, "go", "build", //nolint:gosec // the user of this tool names the output
		"-mod=readonly", "-trimpath", "-buildvcs=false",
		"-gcflags=all=-dwarf=false", // the linker drops this data anyway; the operator is compiled with the same flag
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
