package main

import (
	"go/ast"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/payload"
)

// read returns the text of several pages of docs/.
func read(t *testing.T, names ...string) string {
	t.Helper()
	var all strings.Builder
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(root, "docs", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
	}
	return all.String()
}

// Users see the names that the operator and the daemon use, such as annotations. Every name must be explained on one of
// the two reference pages that are written by hand.
func TestEveryNameOfTheContractIsExplained(t *testing.T) {
	t.Parallel()
	names, err := constants(filepath.Join(root, "internal", "contract"))
	if err != nil {
		t.Fatal(err)
	}
	text := read(t, "reference/node.md", "reference/cluster.md")
	checked := 0
	for _, c := range names {
		if !ast.IsExported(c.name) || c.kind != "" || strings.HasPrefix(c.name, "Key") {
			continue // messages and manifests need no explanation, and reasons have their own page
		}
		checked++
		if !strings.Contains(text, c.value) {
			t.Errorf("neither docs/reference/node.md nor cluster.md explains contract.%s, %q", c.name, c.value)
		}
	}
	if checked < 60 {
		t.Errorf("only %d names were found in internal/contract", checked)
	}
}

// TestWhatTheCodeRegistersIsExplained finds names in the source by the function calls that register them, such as flags
// and metrics. Every name must be explained on a page.
func TestWhatTheCodeRegistersIsExplained(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dir, page string
		pattern   *regexp.Regexp
		atLeast   int
	}{
		"metrics of the operator": {"internal", "reference/metrics.md",
			regexp.MustCompile(`Name:\s+"(wmco_[a-z_]+)"`), 5},
		"results of disruptions": {"internal/instance", "reference/metrics.md",
			regexp.MustCompile(`Result[A-Z]\w+\s+= "(\w+)"`), 2},
		"logs of the daemon's commands": {"internal/daemon/verbs", "reference/node.md",
			regexp.MustCompile("logged\\(ctx, o, [\\w.]+\\+`\\\\([a-z.]+)`"), 1},
		"flags of the operator": {"cmd/wmco", "reference/operator.md",
			regexp.MustCompile(`flags\.\w+Var\(&o\.\w+, "([^"]+)"`), 6},
		"reasons of events and conditions": {"internal/controller", "reference/cluster.md",
			regexp.MustCompile(`(?:event|reason)[A-Z]\w+\s+= "(\w+)"`), 6},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, found := read(t, c.page), 0
			err := filepath.WalkDir(filepath.Join(root, filepath.FromSlash(c.dir)),
				func(path string, entry fs.DirEntry, err error) error {
					if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".go") ||
						strings.HasSuffix(path, "_test.go") {
						return err
					}
					content, err := os.ReadFile(path)
					if err != nil {
						return err
					}
					for _, match := range c.pattern.FindAllStringSubmatch(string(content), -1) {
						found++
						if !strings.Contains(text, match[1]) {
							t.Errorf("docs/%s does not explain %s, which %s names", c.page, match[1],
								filepath.Base(path))
						}
					}
					return nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if found < c.atLeast {
				t.Errorf("only %d names were found below %s; at least %d are there", found, c.dir, c.atLeast)
			}
		})
	}
}

func TestEveryPartOfAPayloadIsExplained(t *testing.T) {
	t.Parallel()
	text := read(t, "payload.md")
	for _, part := range payload.Parts() {
		if !strings.Contains(text, part.Name) || !strings.Contains(text, string(part.Feature)) {
			t.Errorf("docs/payload.md does not explain %s, which is for %s", part.Name, part.Feature)
		}
	}
}
