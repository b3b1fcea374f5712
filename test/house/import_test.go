package house_test

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const module = "github.com/windows-nodes/wmco/"

// found is a package in the output of go list.
type found struct {
	ImportPath, Dir string
	Doc             string
	Imports, Deps   []string
	GoFiles         []string
}

// list runs go list for one operating system.
func list(t *testing.T, goos string, arguments ...string) []found {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go",
		append([]string{"list", "-json=ImportPath,Dir,Doc,Imports,Deps,GoFiles"}, arguments...)...)
	command.Dir = root(t)
	command.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []found
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p found
		if err := decoder.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	path, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestImportArrowsPointDown checks the layers of the packages. Each rule says which packages must not import which
// others, and why.
func TestImportArrowsPointDown(t *testing.T) {
	t.Parallel()
	rules := []struct {
		who, mustNot []string
		why          string
	}{
		{[]string{"internal/contract"}, []string{module, "k8s.io/client-go", "net/http", "os/exec"},
			"the contract is what operator and daemon share: it may know neither"},
		{[]string{"internal/diagnosis"}, []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "net/http", "os"},
			"what objects mean is pure: no client, no network"},
		{[]string{"cmd/kubectl-windows", "internal/kubectlwindows"}, []string{module + "internal/instance",
			module + "internal/controller", module + "internal/host", module + "internal/daemon", "os/exec"},
			"the plugin reads objects: it has no part in what the operator does, and contacts no host"},
		{[]string{"cmd/wmco-e2e", "test/acceptance"}, []string{module + "internal/instance",
			module + "internal/controller", module + "internal/host", module + "internal/daemon", module + "lab", "os/exec"},
			"what tries a cluster sees what its user sees: the API, and nothing of the operator or the lab"},
		{[]string{"internal/inventory", "internal/policy", "internal/blueprint", "internal/userdata"},
			[]string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime", "net/http", "os/exec"},
			"decisions are pure: no client, no network"},
		{[]string{"internal/daemon", "cmd/wicd"},
			[]string{module + "internal/host", module + "internal/instance", module + "internal/controller",
				module + "internal/blueprint",
				module + "internal/cluster", module + "internal/policy", module + "internal/inventory",
				"golang.org/x/crypto/ssh", "github.com/pkg/sftp", "github.com/openshift/api", "os/exec"},
			"the daemon meets the operator in the contract only, and starts no process"},
		{[]string{"internal/instance", "internal/host", "internal/cluster", "internal/payloadserver",
			"internal/inventory",
			"internal/policy", "internal/blueprint", "internal/userdata", "cmd/wmco",
			"internal/controller"},
			[]string{module + "internal/daemon", "os/exec"}, "the operator meets the daemon in the contract " +
				"only"},
		{[]string{"internal/instance", "internal/policy", "internal/blueprint", "internal/inventory", "internal/host",
			"internal/cluster", "internal/userdata"}, []string{module + "internal/controller"},
			"arrows point to what changes least"},
		{[]string{"api", "cmd/wmco", "cmd/wicd", "internal/daemon", "internal/blueprint", "internal/cluster",
			"internal/contract", "internal/controller", "internal/host",
			"internal/payloadserver", "internal/inventory", "internal/instance", "internal/lint", "internal/mirror",
			"internal/payload",
			"internal/policy", "internal/userdata"},
			[]string{module + "lab", module + "test"},
			"the lab and the tests are no part of the product"},
	}
	packages := list(t, "linux", "./...")
	packages = append(packages, list(t, "windows", "./cmd/wicd", "./internal/daemon/...")...)
	for _, rule := range rules {
		for _, p := range packages {
			if !within(strings.TrimPrefix(p.ImportPath, module), rule.who) {
				continue
			}
			for _, imported := range p.Imports {
				if prefixed(imported, rule.mustNot) {
					t.Errorf("%s imports %s: %s", p.ImportPath, imported, rule.why)
				}
			}
		}
	}
}

// TestTheDaemonLinksNeitherSSHNorOpenShift checks every package that is linked into the daemon, including indirect
// imports.
func TestTheDaemonLinksNeitherSSHNorOpenShift(t *testing.T) {
	t.Parallel()
	for _, goos := range []string{"linux", "windows"} {
		for _, p := range list(t, goos, "./cmd/wicd") {
			for _, linked := range p.Deps {
				if prefixed(linked, []string{"golang.org/x/crypto/ssh", "github.com/pkg/sftp",
					"github.com/openshift/api", "sigs.k8s.io/controller-runtime", module + "lab/sim"}) {
					t.Errorf("on %s, the daemon must not link %s", goos, linked)
				}
			}
		}
	}
}

func TestEveryPackageSaysWhatItAnswers(t *testing.T) {
	t.Parallel()
	for _, p := range list(t, "linux", "./...") {
		if len(p.GoFiles) > 0 && p.Doc == "" {
			t.Errorf("%s has no package comment", p.ImportPath)
		}
	}
}

func within(path string, folders []string) bool {
	for _, folder := range folders {
		if path == folder || strings.HasPrefix(path, folder+"/") {
			return true
		}
	}
	return false
}

func prefixed(path string, prefixes []string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}
