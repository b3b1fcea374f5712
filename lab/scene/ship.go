package scene

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// ship applies what an administrator would: config/lab, which is the whole install without the
// Deployment (the operator runs here as a process) and without the monitoring objects (their CRDs
// are not here). kubectl's own kustomize builds it, as for a real cluster.
func (s *Scene) ship(ctx context.Context) error {
	s.say("installing CRDs, RBAC and admission policy")
	if err := s.Apply(ctx, filepath.Join("config", "lab")); err != nil {
		return err
	}
	if s.options.Settings == nil {
		return nil
	}
	return s.Configure(ctx, *s.options.Settings)
}

// Apply applies a directory of the repository with a kustomization, as `kubectl apply --server-side
// -k` does.
func (s *Scene) Apply(ctx context.Context, dir string) error {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return fmt.Errorf("finding %s: %w", dir, err)
	}
	apply := exec.CommandContext(ctx, s.Cluster.Binaries.Kubectl, "--kubeconfig", s.Cluster.Kubeconfig, "apply",
		"--server-side", "-k", filepath.Join(root, dir))
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("applying %s: %w: %s", dir, err, output)
	}
	return nil
}
