// Package blueprinttest reads the golden files of package blueprint: the rendered configuration of nodes, by platform
// and settings.
//
// The tests of blueprint and of packages that consume blueprint's output use it. none.yaml is complete. The other files
// are unified diffs against it. Product code never imports this package.
package blueprinttest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Golden returns the contents of the golden files of a folder, by file name without the extension.
func Golden(tb testing.TB, folder string) map[string]string {
	tb.Helper()
	whole := read(tb, filepath.Join(folder, "none.yaml"))
	golden := map[string]string{"none": whole}
	paths, err := filepath.Glob(filepath.Join(folder, "*.diff"))
	if err != nil || len(paths) == 0 {
		tb.Fatalf("%d golden files, %v", len(paths), err)
	}
	for _, path := range paths {
		text, err := patch(whole, read(tb, path))
		if err != nil {
			tb.Fatalf("%s: %v", path, err)
		}
		golden[strings.TrimSuffix(filepath.Base(path), ".diff")] = text
	}
	return golden
}

func read(tb testing.TB, path string) string {
	tb.Helper()
	text, err := os.ReadFile(path) //nolint:gosec // ours
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}

// patch applies a unified diff to a text.
func patch(text, diff string) (string, error) {
	old := slices.Collect(strings.Lines(text))
	var made strings.Builder
	at := 0
	for line := range strings.Lines(diff) {
		kind, line := line[0], line[1:]
		if kind == '@' {
			first := 0
			if _, err := fmt.Sscanf(line, "@ -%d", &first); err != nil || first <= at || first > len(old) {
				return "", fmt.Errorf("%q does not match a line of none.yaml: run blueprint's tests with -update", line)
			}
			made.WriteString(strings.Join(old[at:first-1], ""))
			at = first - 1
			continue
		}
		if kind != '+' { // the line is in the old text
			at++
		}
		if kind != '-' { // the line is in the new text
			made.WriteString(line)
		}
	}
	return made.String() + strings.Join(old[min(at, len(old)):], ""), nil
}
