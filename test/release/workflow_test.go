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

// workflow is what these tests take from .github/workflows/release.yml.
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

// find returns the one step of a job that fulfils a condition.
func find(t *testing.T, job string, is func(step) bool) step {
	t.Helper()
	var w workflow
	if err := yaml.Unmarshal([]byte(read(t, root(t), ".github", "workflows", "release.yml")), &w); err != nil {
		t.Fatal(err)
	}
	found := slices.DeleteFunc(w.Jobs[job].Steps, func(s step) bool { return !is(s) })
	if len(found) != 1 {
		t.Fatalf("release.yml has %d such steps in the job %s", len(found), job)
	}
	return found[0]
}

// runs finds a step whose script has a text.
func runs(text string) func(step) bool {
	return func(s step) bool { return strings.Contains(s.Run, text) }
}

// uses finds a step that uses an action.
func uses(action string) func(step) bool {
	return func(s step) bool { return strings.HasPrefix(s.Uses, action+"@") }
}

// artifact links what the workflow hands from its first job to its second, so that the second has nothing else. It
// returns the directory that is out/ there.
func artifact(t *testing.T, out string) string {
	t.Helper()
	upload, download := find(t, "build", uses("actions/upload-artifact")), find(t, "publish", uses("actions/download-artifact"))
	if upload.With["name"] != download.With["name"] || download.With["path"] != "out" {
		t.Errorf("%v is uploaded, and %v downloaded", upload.With, download.With)
	}
	paths, _ := upload.With["path"].(string)
	there := t.TempDir()
	for path := range strings.FieldsSeq(paths) {
		name, below := strings.CutPrefix(path, "out/")
		if !below || strings.Contains(name, "/") {
			t.Fatalf("the artifact has %s, and all of it must be in out/", path)
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

// A release that doesn't install must not be published, and what is tested must be what is published.
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
		t.Errorf("the steps that build, test and keep the release are %d, %d, %d", made, tested, kept)
	}
	if pushing := find(t, "publish", runs("make publish ")).Run; pushing != `make publish VERSION="$VERSION"` {
		t.Errorf("the workflow also pushes something else, which no test does: %s", pushing)
	}
	for _, s := range w.Jobs["publish"].Steps {
		if !runs("make publish ")(s) && (strings.Contains(s.Run, "push ") || strings.Contains(s.Run, "make ")) {
			t.Errorf("the workflow pushes in another step, too: %s", s.Run)
		}
	}
}

// A fork publishes in its own registry, whatever its owner's name looks like.
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
