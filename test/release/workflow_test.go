package release_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// workflow contains the fields of .github/workflows/release.yml that these tests use.
type workflow struct {
	Jobs map[string]struct {
		Steps []step `json:"steps"`
	} `json:"jobs"`
}

type step struct {
	Name string         `json:"name"`
	Uses string         `json:"uses"`
	With map[string]any `json:"with"`
	Run  string         `json:"run"`
}

func root(t *testing.T) string {
	t.Helper()
	path, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path ...string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(path...))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// find returns the only step of a job that fulfils a condition.
func find(t *testing.T, job string, is func(step) bool) step {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal([]byte(read(t, root(t), ".github", "workflows", "release.yml")), &w); err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(w.Jobs[job].Steps, func(s step) bool { return !is(s) })
	if len(found) != 1 {
		t.Fatalf("release.yml must have exactly one such step; it has %d in the job %s", len(found), job)
	}
	return found[0]
}

// runs returns a condition: the step's script contains a text.
func runs(text string) func(step) bool {
	return func(s step) bool { return strings.Contains(s.Run, text) }
}

// uses returns a condition: the step uses an action.
func uses(action string) func(step) bool {
	return func(s step) bool { return strings.HasPrefix(s.Uses, action+"@") }
}

// artifact creates a directory with exactly the files that the workflow passes from its first job to its second job as
// an artifact. It returns the directory, which replaces out/ in the second job.
func artifact(t *testing.T, out string) string {
	t.Helper()
	upload, download := find(t, "build", uses("actions/upload-artifact")), find(t, "publish", uses("actions/download-artifact"))
	if upload.With["name"] != download.With["name"] || download.With["path"] != "out" {
		t.Errorf("the first job uploads %v, but the second job downloads %v", upload.With, download.With)
	}
	paths, _ := upload.With["path"].(string)
	there := t.TempDir()
	for path := range strings.FieldsSeq(paths) {
		name, below := strings.CutPrefix(path, "out/")
		if !below || strings.Contains(name, "/") {
			t.Fatalf("the artifact contains %s, but all its files must be in out/", path)
		}
		if _, err := os.Stat(filepath.Join(out, name)); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(out, name), filepath.Join(there, name)); err != nil {
			t.Fatal(err)
		}
	}
	return there
}

// The workflow must test a release before it publishes it, and it must publish exactly the files that were tested.
func TestTheWorkflowInstallsTheReleaseBeforeItPublishesIt(t *testing.T) {
	t.Parallel()
	var w workflow
	if err := yaml.Unmarshal([]byte(read(t, root(t), ".github", "workflows", "release.yml")), &w); err != nil {
		t.Fatal(err)
	}
	steps := w.Jobs["build"].Steps
	at := func(is func(step) bool) int { return slices.IndexFunc(steps, is) }
	made, tested, kept := at(runs("make release ")), at(runs("make test-release")), at(uses("actions/upload-artifact"))
	if made < 0 || tested < made || kept < tested {
		t.Errorf("the steps must be in the order build, test, upload; their positions are %d, %d, %d", made, tested,
			kept)
	}
	if pushing := find(t, "publish", runs("make publish ")).Run; pushing != `make publish VERSION="$VERSION"` {
		t.Errorf("the workflow pushes with a command that no test runs: %s", pushing)
	}
	for _, s := range w.Jobs["publish"].Steps {
		if !runs("make publish ")(s) && (strings.Contains(s.Run, "push ") || strings.Contains(s.Run, "make ")) {
			t.Errorf("another step of the workflow also pushes: %s", s.Run)
		}
	}
}

// A fork publishes to its own registry. This must work for every name of the fork's owner, for example with capital
// letters.
func TestAReleaseIsNamedAfterTheRepositoryThatRunsTheWorkflow(t *testing.T) {
	t.Parallel()
	for repository, want := range map[string][2]string{
		"Some-One/WMCO": {"ghcr.io/some-one/wmco", "https://github.com/Some-One/WMCO/releases/download/v0.2.0"},
		"":              {"quay.io/windows-nodes/wmco", "https://github.com/windows-nodes/wmco/releases/download/v0.2.0"},
	} {
		c := exec.CommandContext(t.Context(), "make", "-s", "-f", "Makefile", "--eval",
			"names: ; @echo '$(IMAGE)' '$(PLUGIN_URL)'", "names")
		c.Dir, c.Env = root(t), append(environment(), "GITHUB_REPOSITORY="+repository, "VERSION=0.2.0")
		printed, err := c.Output()
		if got := strings.Fields(string(printed)); err != nil || !slices.Equal(got, want[:]) {
			t.Errorf("%q: %v, %v", repository, got, err)
		}
	}
}
