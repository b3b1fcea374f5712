package config_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// The committed files equal controller-gen's output. If this fails, run make generate.
func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Parallel()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	fresh := t.TempDir()
	generator := filepath.Join(fresh, "controller-gen")
	run(t, filepath.Join(root, "tools", "controller-gen"), "go", "build", "-o", generator,
		"sigs.k8s.io/controller-tools/cmd/controller-gen")
	run(t, root, generator, "crd", "paths=./api/v1alpha1", "output:crd:dir="+filepath.Join(fresh, "crd"))
	run(t, root, generator, "crd", "paths=./api/bootstrap/...", "output:crd:dir="+filepath.Join(fresh, "bootstrap"))
	run(t, root, generator, "rbac:roleName=windows-bootstrap-provider", "paths=./internal/bootstrap",
		"output:rbac:dir="+filepath.Join(fresh, "provider"))
	run(t, root, generator, "rbac:roleName=windows-machine-config-operator",
		"paths={./cmd/wmco/...,./internal/cluster/...,./internal/controller/...,./internal/controller/rollout/...,./config}",
		"output:rbac:dir="+filepath.Join(fresh, "rbac"))
	run(t, root, generator, "rbac:roleName=windows-machine-config-operator-kubernetes",
		"paths=./config/kubernetes/rights", "output:rbac:dir="+filepath.Join(fresh, "kubernetes"))
	run(t, root, generator, "object", "paths=./api/v1alpha1", "output:object:dir="+filepath.Join(fresh, "object"))
	run(t, root, generator, "object", "paths=./api/bootstrap/v1alpha1",
		"output:object:dir="+filepath.Join(fresh, "object-bootstrap"))
	for generated, committed := range map[string]string{"crd": "config/crd", "rbac": "config/rbac",
		"kubernetes": "config/kubernetes/rights", "object": "api/v1alpha1", "bootstrap": "config/bootstrap/crd",
		"provider": "config/bootstrap/rbac", "object-bootstrap": "api/bootstrap/v1alpha1"} {
		files, err := os.ReadDir(filepath.Join(fresh, generated))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s has no generated counterpart: %v", committed, err)
		}
		for _, file := range files {
			want, err := os.ReadFile(filepath.Join(fresh, generated, file.Name()))
			if err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(filepath.Join(root, committed, file.Name()))
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s/%s is outdated (%v): run make generate", committed, file.Name(), err)
			}
		}
	}
}

// run runs a program in a folder and returns its output.
func run(t *testing.T, dir, program string, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), program, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "CGO_ENABLED=0") // as make does; only the test's race detector needs cgo
	output, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("running %s %v: %v\n%s", filepath.Base(program), args, err, output)
	}
	return string(output)
}
