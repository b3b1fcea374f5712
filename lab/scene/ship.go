package scene

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/openshift"
)

// ship builds the manifests in config/lab with `kubectl kustomize`, as for a real cluster, and applies them. config/lab
// is the complete installation with two exceptions. It has no Deployment, because the operator runs as a process. It
// has no monitoring objects, because the lab doesn't install their CRDs. If the scene has a different namespace, ship
// replaces the namespace in the manifests as docs/kubernetes.md describes.
func (s *Scene) ship(ctx context.Context) error {
	dir := filepath.Join("config", "lab")
	if s.options.Kubernetes {
		dir = filepath.Join(dir, "kubernetes")
	}
	if s.options.Bundle != "" {
		return s.InstallBundle(ctx, s.options.Bundle)
	}
	s.say("installing CRDs, RBAC and admission policy")
	if err := s.Apply(ctx, dir); err != nil || !s.options.flannel() {
		return err
	}
	return s.Apply(ctx, filepath.Join("config", "kubernetes", "flannel"))
}

// InstallBundle installs a bundle in the way OLM does. At its next start, the operator gets the flags in the bundle.
// Exception: the lab sets some flags itself.
func (s *Scene) InstallBundle(ctx context.Context, dir string) error {
	s.say("installing OLM's bundle")
	name, container, err := openshift.InstallBundle(ctx, s.Cluster.Admin(), dir)
	if err != nil {
		return fmt.Errorf("installing the bundle %s: %w", dir, err)
	}
	s.options.OLM, s.bundled = name, nil
	for _, arg := range container.Args {
		flag, _, _ := strings.Cut(arg, "=")
		if !slices.Contains([]string{flagPayload, flagMetrics, flagHealth}, flag) {
			s.bundled = append(s.bundled, arg)
		}
	}
	if s.Operator != nil {
		s.Operator.condition, s.Operator.bundled = name, s.bundled
	}
	return nil
}

// Apply applies a directory of the repository with a kustomization, like `kubectl apply --server-side -k`.
func (s *Scene) Apply(ctx context.Context, dir string) error {
	root, err := cluster.ModuleRoot()
	if err != nil {
		return fmt.Errorf("finding %s: %w", dir, err)
	}
	made, err := exec.CommandContext(ctx, s.Cluster.Binaries.Kubectl, "kustomize", filepath.Join(root, dir)).Output()
	if err != nil {
		return fmt.Errorf("building %s: %w", dir, err)
	}
	apply := exec.CommandContext(ctx, s.Cluster.Binaries.Kubectl, "--kubeconfig", s.Cluster.Kubeconfig, "apply",
		"--server-side", "-f", "-")
	apply.Stdin = bytes.NewReader(bytes.ReplaceAll(made, []byte(contract.OperatorNamespace),
		[]byte(s.options.Namespace)))
	if output, err := apply.CombinedOutput(); err != nil {
		return fmt.Errorf("applying %s: %w: %s", dir, err, output)
	}
	return nil
}
