package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

var (
	// target matches a make target in a document, either within a sentence or on its own line. folder matches a path of
	// this repository.
	target = regexp.MustCompile("(?m)(?:`|^    )make ([a-z0-9-]+)")
	folder = regexp.MustCompile("`((?:api|cmd|config|docs|internal|lab|payload|test|tools|\\.ci)/[A-Za-z0-9_./-]*)`")
	link   = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	// anchor matches a link to a section of this page or another page. slug matches the characters that GitHub
	// drops from a heading to create its anchor. id matches an explicit anchor.
	anchor = regexp.MustCompile(`\]\(([^)#:]*)#([^)]+)\)`)
	slug   = regexp.MustCompile(`[^a-z0-9_-]`)
	id     = regexp.MustCompile(`<a id="([^"]+)">`)
	// span matches code within a line. In code, brackets are not a link.
	span = regexp.MustCompile("`[^`\n]*`")
)

// documents returns the pages for users and contributors.
func documents(t *testing.T) map[string]string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "git", "ls-files", "*.md")
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for name := range strings.FieldsSeq(string(output)) {
		content, err := os.ReadFile(filepath.Join(root(t), name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		pages[name] = string(content)
	}
	return pages
}

func TestDocumentsNameOnlyWhatExists(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for page, content := range documents(t) {
		for _, match := range target.FindAllStringSubmatch(content, -1) {
			if !strings.Contains(string(makefile), "\n"+match[1]+":") {
				t.Errorf("%s names the target %q, which the Makefile does not have", page, match[1])
			}
		}
		for _, match := range folder.FindAllStringSubmatch(content, -1) {
			if _, err := os.Stat(filepath.Join(root(t), match[1])); err != nil {
				t.Errorf("%s names %s, which does not exist", page, match[1])
			}
		}
		for _, match := range link.FindAllStringSubmatch(span.ReplaceAllString(content, ""), -1) {
			if _, err := os.Stat(filepath.Join(root(t), filepath.Dir(page), match[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", page, match[1])
			}
		}
	}
}

func TestEveryReasonIsNumberedOnceAndHasAFix(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(filepath.Join(root(t), "internal", "contract", "reason.go"))
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[int]contract.Reason{}
	declared := regexp.MustCompile(`(?m)^(.*)\n\tReason\w+\s+Reason = "(\w+)"`).FindAllStringSubmatch(string(source), -1)
	if all := strings.Count(string(source), " Reason = "); all != len(declared) || all == 0 {
		t.Errorf("%d of %d reasons were found", len(declared), all)
	}
	for _, match := range declared {
		reason := contract.Reason(match[2])
		if other, taken := numbers[reason.Number()]; taken || reason.Number() == 0 {
			t.Errorf("reason %s has no number, or it has the number %d, which belongs to %s", reason, reason.Number(),
				other)
		}
		numbers[reason.Number()] = reason
		if !strings.HasPrefix(match[1], "\t// ") || !strings.HasSuffix(match[1], ".") || !strings.HasSuffix(reason.Fix(), ".") {
			t.Errorf("reason %s has no sentence about when it occurs, or none about the fix", reason)
		}
		if strings.Contains(reason.Fix(), contract.OperatorNamespace) {
			t.Errorf("the fix of %s names a fixed namespace, but the operator may run in another", reason)
		}
	}
}
