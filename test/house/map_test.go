package house_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTheArchitecturePageMapsEveryPackage checks that docs/architecture.md lists every package. A contributor looks for
// packages on this page first.
func TestTheArchitecturePageMapsEveryPackage(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	packages := list(t, "linux", "./...")
	packages = append(packages, list(t, "windows", "./internal/daemon/...", "./lab/wine/...")...)
	seen := map[string]bool{}
	for _, p := range packages {
		path := strings.TrimPrefix(p.ImportPath, module)
		if seen[path] || mapped(string(page), path) {
			continue
		}
		seen[path] = true
		t.Errorf("docs/architecture.md does not list %s: add a row under Packages", path)
	}
	if len(packages) < 50 {
		t.Errorf("go list found only %d packages", len(packages))
	}
}

// mapped reports whether the page names a package. For a journey, the page names its folder.
func mapped(page, path string) bool {
	if strings.HasPrefix(path, "internal/instance/") {
		path = "internal/instance"
	}
	return strings.Contains(page, "`"+path+"`")
}
