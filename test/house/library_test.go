package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// requirement matches a line of go.mod that requires a module.
var requirement = regexp.MustCompile(`(?m)^\t([a-z0-9.]+/\S+) v\S+(.*)$`)

func TestEveryDirectDependencyIsExplained(t *testing.T) {
	t.Parallel()
	modules, err := os.ReadFile(filepath.Join(root(t), "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "libraries.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, match := range requirement.FindAllStringSubmatch(string(modules), -1) {
		if strings.Contains(match[2], "// indirect") {
			continue
		}
		found++
		if !strings.Contains(string(page), "`"+match[1]+"`") {
			t.Errorf("docs/libraries.md does not say why the project needs %s", match[1])
		}
	}
	if found < 20 {
		t.Errorf("only %d direct dependencies were found in go.mod", found)
	}
}
