package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const acceptanceIntroduction = `# Tests of the acceptance list

Look up here which tests show a row of the [acceptance list](../acceptance.md). *The whole* lists tests of the whole
operator, in ` +
	"`test/e2e`" + `. *Under Wine* lists tests in ` + "`test/wine`" + `. *Parts* lists tests of a part of the row.
The names in this table omit ` + "`Test`" + ` and the numbers of the rows.

`

var (
	acceptanceRow = regexp.MustCompile(`(?m)^\| <a id="A\d\d"></a>(A\d\d) \|`)
	// rowTest matches a test whose name contains one or more rows, such as TestA21A26_…
	rowTest   = regexp.MustCompile(`(?m)^func (Test((?:A\d\d)+)_\w+)\(`)
	rowNumber = regexp.MustCompile(`A\d\d`)
)

// acceptancePage lists the tests of each row, from the tests' names.
func acceptancePage(root string) ([]byte, error) {
	list, err := os.ReadFile(filepath.Join(root, "docs", "acceptance.md"))
	if err != nil {
		return nil, fmt.Errorf("reading the acceptance list: %w", err)
	}
	tests, err := rowTests(root)
	if err != nil {
		return nil, err
	}
	var rows [][]string
	var none []string
	for _, match := range acceptanceRow.FindAllStringSubmatch(string(list), -1) {
		row := match[1]
		if len(tests[row]) == 0 {
			none = append(none, row)
		}
		link := fmt.Sprintf("[%s](../acceptance.md#%s)", row, row)
		rows = append(rows, []string{link, names(tests[row], "test/e2e/"), names(tests[row], "test/wine/"),
			names(tests[row], "")})
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("docs/acceptance.md has no rows")
	}
	var b bytes.Buffer
	b.WriteString(generated + acceptanceIntroduction)
	if len(none) > 0 {
		fmt.Fprintf(&b, "No test shows these yet: %s.\n\n", strings.Join(none, ", "))
	}
	table(&b, []string{"Row", "The whole", "Under Wine", "Parts"}, rows)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// rowTests maps each row to its tests, and each test to its files.
func rowTests(root string) (map[string]map[string][]string, error) {
	tests := map[string]map[string][]string{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "out"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		for _, match := range rowTest.FindAllSubmatch(source, -1) {
			for _, row := range rowNumber.FindAllString(string(match[2]), -1) {
				if tests[row] == nil {
					tests[row] = map[string][]string{}
				}
				name := string(match[1])
				tests[row][name] = append(tests[row][name], filepath.ToSlash(relative))
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("looking for tests: %w", err)
	}
	return tests, nil
}

// names lists the tests below a folder. Without a folder, it lists the tests outside test/e2e and test/wine.
func names(tests map[string][]string, folder string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(tests)) {
		if slices.ContainsFunc(tests[name], func(path string) bool {
			if folder == "" {
				return !strings.HasPrefix(path, "test/e2e/") && !strings.HasPrefix(path, "test/wine/")
			}
			return strings.HasPrefix(path, folder)
		}) {
			_, sentence, _ := strings.Cut(name, "_")
			all = append(all, sentence)
		}
	}
	return strings.Join(all, ", ")
}
