package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/payload"
)

func TestMinorsArePinnedAndTheNewestComesFirst(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	for _, minor := range []string{"1.9", "1.36", "1.10", "1.37"} {
		if err := os.MkdirAll(filepath.Join(root, kubernetesPins, minor), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for asked, want := range map[string][]string{
		"all":       {"1.37", "1.36", "1.10", "1.9"},
		"1.36":      {"1.36"},
		"1.9, 1.36": {"1.36", "1.9"},
	} {
		if got, err := minorsIn(root, asked); err != nil || !slices.Equal(got, want) {
			t.Errorf("parsing %q returned %v, %v", asked, got, err)
		}
	}
	for _, asked := range []string{"", " ", "1.35", "1.36 1.8", "../1.36", "1"} {
		if _, err := minorsIn(root, asked); err == nil || !strings.Contains(err.Error(), "1.37, 1.36, 1.10, 1.9") {
			t.Errorf("parsing %q returned the error %v", asked, err)
		}
	}
}

// Each directory's name must be the minor version that its module pins. There must be at least four minor versions,
// including the default.
func TestEveryPinIsOfItsMinor(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	minors, err := minorsIn(root, allMinors)
	if err != nil {
		t.Fatal(err)
	}
	if len(minors) < 4 || !slices.Contains(minors, defaultMinor) {
		t.Errorf("the pinned minor versions are %v", minors)
	}
	for _, minor := range minors {
		mod, err := os.ReadFile(filepath.Join(root, pinsOf(minor), "go.mod"))
		if err != nil {
			t.Fatal(err)
		}
		patch := regexp.MustCompile(`(?m)^(?:require|\t)\s*k8s\.io/kubernetes v` + regexp.QuoteMeta(minor) + `(\.\d+)`).FindSubmatch(mod)
		if patch == nil {
			t.Errorf("directory %s pins another minor version", minor)
			continue
		}
		staging := " v0." + strings.TrimPrefix(minor, "1.") + string(patch[1]) + "\n"
		for line := range strings.Lines(string(mod)) {
			if strings.Contains(line, "=>") && !strings.HasSuffix(line, staging) {
				t.Errorf("directory %s has a replacement with another version: %s", minor, line)
			}
		}
	}
}

func TestAPayloadHoldsAProgramInSeveralVersions(t *testing.T) {
	t.Parallel()
	components := tree()
	older := components[1]
	older.Dir = "pins-older"
	m, _, err := fill(t, options{Version: "1.0.0", Components: append(components, older)})
	if err != nil {
		t.Fatal(err)
	}
	one, _, err := fill(t, options{Version: "1.0.0", Components: tree()})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range m.Files {
		got[f.Name+" "+f.Version]++
	}
	want := map[string]int{payload.NameDaemon + " 1.0.0": 1, payload.NameKubelet + " v1.2.3": 1, payload.NameKubelet + " v1.1.9": 1}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the payload's content differs:\n%s", diff)
	}
	if len(m.Blobs()) != 3 || m.Files[1].Version != "v1.2.3" {
		t.Errorf("the newest version is not first, or two versions have the same file: %v", m.Files)
	}
	// Both payloads must have the same common files.
	if diff := cmp.Diff(one.Files, m.Files[:2]); diff != "" {
		t.Errorf("the common files differ:\n%s", diff)
	}
}
