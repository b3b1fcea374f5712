package scene

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// BuildOperator compiles the operator with the given version into dir and returns the path of the program. If only the
// version has changed since an earlier build, Go only links the program again.
func BuildOperator(ctx context.Context, dir, version string) (string, error) {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return "", fmt.Errorf("finding the operator's source: %w", err)
	}
	path := filepath.Join(dir, "wmco-"+version)
	args := append(cluster.CompileFlags(), "-ldflags",
		"-s -w -X github.com/windows-nodes/wmco/internal/version.version="+version, "-o", path, "./cmd/wmco")
	build := exec.CommandContext(ctx, "go", append([]string{"build"}, args...)...) //nolint:gosec // from the caller
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building version %s of the operator: %w: %s", version, err, output)
	}
	return path, nil
}

// Upgrade stops the operator and starts the next build, as its Deployment would. If operator is empty, the program
// stays the same. If payload is empty, the payload stays the same.
func (s *Scene) Upgrade(ctx context.Context, operator, payload string) error {
	if err := s.Operator.Stop(); err != nil {
		return err
	}
	if operator != "" {
		if err := s.Operator.SetBinary(operator); err != nil {
			return err
		}
	}
	if payload != "" {
		s.Operator.SetPayload(payload)
	}
	return s.Operator.Start(ctx)
}

// PayloadDir returns the directory of the scene's first payload.
func (s *Scene) PayloadDir() string { return s.payload }
