package scene

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// ship applies what an administrator would: config/lab, which is the whole install without the Deployment (the operator runs here as a
// process) and without the monitoring objects (their CRDs are not here). kubectl's own kustomize builds it, as for a real cluster.
func (s *Scene) ship(ctx context.Context) error {
	s.say("installing CRDs, RBAC and admission policy")
	root, err := cluster.ModuleRoot()
	if err != nil {
		return fmt.Errorf("finding config/: %w", err)
	}
	apply := exec.CommandContext(ctx, s.Cluster.Binaries.Kubectl, "--kubeconfig", s.Cluster.Kubeconfig, "apply", "--server-side", "-k", filepath.Join(root, "config", "lab"))
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("applying config/lab: %w: %s", err, output)
	}
	if s.options.Settings == nil {
		return nil
	}
	return s.Configure(ctx, *s.options.Settings)
}
