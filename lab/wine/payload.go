//go:build linux

package wine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// realParts are the programs that run on Wine hosts in the same builds as in production.
func realParts() []string {
	return []string{payload.NameDaemon, payload.NameKubeLogRunner, payload.NameContainerd}
}

// playedParts are stand-ins that run on hosts. The remaining parts are only files on a host, because only containers
// run them.
func playedParts() []string {
	return []string{payload.NameKubelet, payload.NameKubeProxy, payload.NameHybridOverlay, payload.NameWindowsExporter,
		payload.NameCSIProxy}
}

// Part describes one program of a payload.
type Part struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Source  string `json:"source"`
	// Kind is the kind of the program.
	Kind Kind `json:"kind"`
}

// Kind is the kind of a program.
type Kind string

// Kinds of programs.
const (
	KindReal    Kind = "real"
	KindStandin Kind = "stand-in"
	KindNever   Kind = "stand-in, never run"
)

// standinVersion is the version that the stand-ins report.
const standinVersion = "v1.36.3"

// WritePayload fills a directory with a payload for Wine hosts: the real daemon, containerd and kube-log-runner,
// cross-built as in a release, and Windows stand-ins for the other programs. version is the version of the daemon and
// the payload.
func WritePayload(ctx context.Context, dir, version string, progress io.Writer) ([]Part, error) {
	if err := writePayload(ctx, dir, version, progress, realParts(), nil); err != nil {
		return nil, err
	}
	return describeParts(dir)
}

// WriteKubernetesPayload works like WritePayload, but uses the real kubelet and kube-proxy. Their minor version must be
// pinned below payload/kubernetes. Each version of their sources is built once. The build takes minutes and is kept in
// the user's cache directory.
func WriteKubernetesPayload(ctx context.Context, dir, version, minor string, progress io.Writer) error {
	programs, err := kubernetesPrograms(ctx, minor, progress)
	if err != nil {
		return err
	}
	return writePayload(ctx, dir, version, progress, realParts(), programs)
}

// writePayload runs the builder of the payload, which builds the parts in `built`. Each other part is the program in
// `given`, or else a stand-in. The builder also gets the arguments in `further`.
func writePayload(ctx context.Context, dir, version string, progress io.Writer, built []string,
	given map[string]program, further ...string) (err error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return fmt.Errorf("finding the sources: %w", err)
	}
	supplied, err := os.MkdirTemp("", "wmco-wine-")
	if err != nil {
		return fmt.Errorf("making a directory for stand-ins: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(supplied)) }()
	standin := filepath.Join(supplied, "standin")
	if err = Build(ctx, Program{Package: "./lab/wine/standin"}, standin); err != nil {
		return err
	}
	for _, part := range payload.Parts() {
		if slices.Contains(built, part.Name) {
			continue
		}
		from, is := given[part.Name]
		if !is {
			from = program{standin, standinVersion}
		}
		path := filepath.Join(supplied, part.Name)
		if err = errors.Join(os.Symlink(from.path, path),
			os.WriteFile(path+".version", []byte(from.version), 0o600)); err != nil {
			return fmt.Errorf("supplying %s: %w", part.Name, err)
		}
	}
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"run", "./tools/payload", "--out", dir, "--supplied",
		supplied, "--version", version}, further)...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = root, progress, progress
	group(cmd)
	if err = cmd.Run(); err != nil {
		return fmt.Errorf("building the payload: %w", err)
	}
	return nil
}

// describeParts lists the parts of a payload that WritePayload created.
func describeParts(dir string) ([]Part, error) {
	made, err := payload.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the payload: %w", err)
	}
	var parts []Part
	for _, f := range made.Manifest().Files {
		part := Part{Name: f.Name, Version: f.Version, Source: f.Source, Kind: KindNever}
		switch {
		case slices.Contains(realParts(), f.Name):
			part.Kind = KindReal
		case slices.Contains(playedParts(), f.Name):
			part.Kind, part.Source = KindStandin, "lab/wine/standin"
		}
		parts = append(parts, part)
	}
	return parts, nil
}
