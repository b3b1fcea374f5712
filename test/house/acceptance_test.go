package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	// rowOfPage matches a row of docs/acceptance.md. rowsOfTest matches the beginning of a test's name that contains
	// one or several rows, such as TestA21A26_….
	rowOfPage  = regexp.MustCompile(`(?m)^\| <a id="(A\d\d)"></a>(A\d\d) \|`)
	rowsOfTest = regexp.MustCompile(`(?m)^func Test((?:A\d+)+)_`)
	rowNumber  = regexp.MustCompile(`A\d+`)
)

// rows lists the numbers of the acceptance list in the order of the page.
func rows(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), "docs", "acceptance.md"))
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, match := range rowOfPage.FindAllStringSubmatch(string(page), -1) {
		if match[1] != match[2] {
			t.Errorf("in docs/acceptance.md, row %[2]s has the anchor %[1]s", match[1], match[2])
		}
		all = append(all, match[2])
	}
	return all
}

func TestRowsOfTheAcceptanceListAreInOrderAndUnique(t *testing.T) {
	t.Parallel()
	all := rows(t)
	if len(all) < 60 {
		t.Errorf("only %d rows were found in docs/acceptance.md", len(all))
	}
	if sorted := slices.Compact(slices.Sorted(slices.Values(all))); !slices.Equal(all, sorted) {
		t.Errorf("rows of docs/acceptance.md are %v, want %v", all, sorted)
	}
}

func TestTestsThatAreNamedAfterARowNameOneThatExists(t *testing.T) {
	t.Parallel()
	known := rows(t)
	command := exec.CommandContext(t.Context(), "git", "ls-files", "*_test.go")
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for name := range strings.FieldsSeq(string(output)) {
		source, err := os.ReadFile(filepath.Join(root(t), name))
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range rowsOfTest.FindAllStringSubmatch(string(source), -1) {
			for _, row := range rowNumber.FindAllString(match[1], -1) {
				named++
				if !slices.Contains(known, row) {
					t.Errorf("%s has a test named after %s, which docs/acceptance.md does not have", name, row)
				}
			}
		}
	}
	if named < 100 {
		t.Errorf("only %d tests are named after a row", named)
	}
}
