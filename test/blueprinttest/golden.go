// Package blueprinttest reads the golden files of blueprint: what nodes are given, by platform and settings.
//
// Tests of blueprint use it, and those of what takes what blueprint renders. none.yaml is whole; the others
// are unified diffs to it. Product code never imports it.
package blueprinttest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Golden gives what the files of a folder say, by their names without the extension.
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

// patch gives what a unified diff makes of a text.
func patch(text, diff string) (string, error) {
	old := slices.Collect(strings.Lines(text))
	var made strings.Builder
	at := 0
	for line := range strings.Lines(diff) {
		kind, line := line[0], line[1:]
		if kind == '@' {
			first := 0
			if _, err := fmt.Sscanf(line, "@ -%d", &first); err != nil || first <= at || first > len(old) {
				return "", fmt.Errorf("%q is no place in none.yaml: run blueprint's tests with -update", line)
			}
			made.WriteString(strings.Join(old[at:first-1], ""))
			at = first - 1
			continue
		}
		if kind != '+' { // it is in the old text
			at++
		}
		if kind != '-' { // it is in the new one
			made.WriteString(line)
		}
	}
	return made.String() + strings.Join(old[min(at, len(old)):], ""), nil
}
