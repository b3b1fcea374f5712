package house_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	testName    = regexp.MustCompile(`\b(Test[A-Za-z0-9_]+|Fuzz[A-Za-z0-9_]+)`)
	packageName = regexp.MustCompile("`((?:internal|config|lab|test|cmd)[a-z0-9/]*)`")
)

// The threat model names, for each attack, the tests that show that it is prevented. It gives the test's whole name or
// the beginning of its name, and the package. Every named test must exist.
func TestEveryTestThatTheThreatModelNamesExists(t *testing.T) {
	t.Parallel()
	testsNamed(t, "SECURITY.md", 30)
}

// The page about real Windows names the tests that simulate Windows' behavior. Every named test must exist.
func TestEveryTestThatPlaysRealWindowsExists(t *testing.T) {
	t.Parallel()
	testsNamed(t, "docs/reference/simulated-windows.md", 15)
}

// testsNamed checks the tests in the last cells of a page's tables. least is the expected minimum number of tests.
func testsNamed(t *testing.T, path string, least int) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(root(t), path))
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		shown := cells[len(cells)-1]
		if len(cells) < 2 || !strings.HasPrefix(line, "| ") || cells[0] == "| Who" || strings.HasPrefix(cells[0], "| -") {
			continue
		}
		if !testName.MatchString(shown) {
			continue
		}
		packages := packageName.FindAllStringSubmatch(shown, -1)
		if len(packages) == 0 {
			t.Errorf("no package is given for the tests in %q", shown)
		}
		used := map[string]bool{}
		for _, test := range testName.FindAllString(shown, -1) {
			named++
			found := false
			for _, p := range packages {
				if hasTest(t, p[1], test) {
					found, used[p[1]] = true, true
				}
			}
			if !found {
				t.Errorf("no package in %q has the test %s", shown, test)
			}
		}
		for _, p := range packages {
			if !used[p[1]] {
				t.Errorf("package %s has none of the tests in %q", p[1], shown)
			}
		}
	}
	if named < least {
		t.Errorf("only %d tests are named", named)
	}
}

// hasTest reports whether a package has a test whose name begins with a text.
func hasTest(t *testing.T, directory, test string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root(t), directory, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains("\n"+string(source), "\nfunc "+test) {
			return true
		}
	}
	return false
}
