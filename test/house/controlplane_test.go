package house_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// pinned matches a line of go.mod with a module and its version. In a replacement, it captures the replacing version.
var pinned = regexp.MustCompile(`(?m)^\t([a-z0-9.]+/\S+)(?: => \S+)? (v\S+)`)

func pins(t *testing.T, directory string) map[string]string {
	t.Helper()
	modules, err := os.ReadFile(filepath.Join(root(t), directory, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, match := range pinned.FindAllStringSubmatch(string(modules), -1) {
		versions[match[1]] = match[2] // replacements come last, so they win
	}
	return versions
}

// The operator and the lab's control plane share a thousand packages. If these packages and their imports have the same
// versions in both modules, the go command compiles them only once.
func TestTheControlPlaneHasTheOperatorsVersions(t *testing.T) {
	t.Parallel()
	operator, controlPlane := pins(t, "."), pins(t, filepath.Join("lab", "controlplane"))
	common := 0
	for _, name := range slices.Sorted(maps.Keys(operator)) {
		version, shared := controlPlane[name]
		if !shared {
			continue
		}
		common++
		if version != operator[name] {
			t.Errorf("%s is %s in go.mod and %s in lab/controlplane/go.mod: give the lower one the version of "+
				"the other, in its folder: go get %s@<version> && go mod tidy", name, operator[name], version, name)
		}
	}
	if common < 50 {
		t.Errorf("only %d modules were found in both go.mod files", common)
	}
}
