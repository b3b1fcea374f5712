package house_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// workflow contains the fields that the rules check. YAML reads the key "on" as true.
type workflow struct {
	On          any            `json:"true"`
	Permissions map[string]any `json:"permissions"`
	Jobs        map[string]struct {
		Permissions map[string]any `json:"permissions"`
		RunsOn      string         `json:"runs-on"`
		Timeout     int            `json:"timeout-minutes"`
		Steps       []struct {
			Uses string         `json:"uses"`
			With map[string]any `json:"with"`
			Run  string         `json:"run"`
		} `json:"steps"`
	} `json:"jobs"`
}

var (
	usesLine     = regexp.MustCompile(`(?m)^\s*(?:- )?uses: (.+)$`)
	pinnedAction = regexp.MustCompile(`^[\w-]+/[\w/-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)
	makeLine     = regexp.MustCompile(`(?m)^\s*make ([a-z0-9-]+)`)
	program      = regexp.MustCompile(`\./((?:cmd|tools)/[a-z0-9-]+)`)
)

// workflows returns the files in .github/workflows by name.
func workflows(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root(t), ".github", "workflows", "*.yml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("workflows: %v, %v", paths, err)
	}
	all := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		all[filepath.Base(path)] = string(text)
	}
	return all
}

// triggers returns the events that start a workflow.
func (w workflow) triggers() []string {
	switch on := w.On.(type) {
	case string:
		return []string{on}
	case map[string]any:
		return slices.Collect(maps.Keys(on))
	}
	return nil
}

// actionlint checks the syntax of workflows. This test checks additional rules: others can't change the code that a
// workflow runs, a pull request publishes nothing, and no run hangs for hours.
func TestWorkflowsArePinnedAndHaveTheLeastRights(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(filepath.Join(root(t), "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range workflows(t) {
		for _, match := range usesLine.FindAllStringSubmatch(text, -1) {
			if !pinnedAction.MatchString(match[1]) {
				t.Errorf("%s: %q is not pinned by a commit, with its version as a comment", name, match[1])
			}
		}
		for _, match := range makeLine.FindAllStringSubmatch(text, -1) {
			if !strings.Contains(string(makefile), "\n"+match[1]+":") {
				t.Errorf("%s runs make %s, which the Makefile does not have", name, match[1])
			}
		}
		for _, match := range program.FindAllStringSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(root(t), match[1])); err != nil {
				t.Errorf("%s runs %s, which does not exist", name, match[1])
			}
		}
		w := workflow{}
		if err := yaml.Unmarshal([]byte(text), &w); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		w.check(t, name)
	}
}

// check checks the rights, triggers and steps of a workflow.
func (w workflow) check(t *testing.T, name string) {
	t.Helper()
	triggers := w.triggers()
	if len(triggers) == 0 || len(w.Jobs) == 0 {
		t.Errorf("%s: found the triggers %v and %d jobs", name, triggers, len(w.Jobs))
	}
	// Both triggers give code of a pull request this repository's rights and secrets.
	for _, trigger := range []string{"pull_request_target", "workflow_run"} {
		if slices.Contains(triggers, trigger) {
			t.Errorf("%s runs on %s", name, trigger)
		}
	}
	if len(w.Permissions) != 1 || w.Permissions["contents"] != "read" {
		t.Errorf("%s has the rights %v by default, want contents: read", name, w.Permissions)
	}
	for job, j := range w.Jobs {
		for what, right := range j.Permissions {
			if right == "write" && slices.Contains(triggers, "pull_request") {
				t.Errorf("%s: job %s may write %s, but pull requests start it", name, job, what)
			}
		}
		if j.Timeout == 0 || j.Timeout > 240 {
			t.Errorf("%s: job %s has a time limit of %d minutes", name, job, j.Timeout)
		}
		if j.RunsOn == "" || strings.HasSuffix(j.RunsOn, "-latest") {
			t.Errorf("%s: job %s runs on %q, which is not pinned", name, job, j.RunsOn)
		}
		for _, step := range j.Steps {
			if strings.HasPrefix(step.Uses, "actions/checkout@") && step.With["persist-credentials"] != false {
				t.Errorf("%s: job %s leaves its token in the checkout", name, job)
			}
			// GitHub inserts an expression into the script unquoted, so its value could run as code.
			if strings.Contains(step.Run, "${{") {
				t.Errorf("%s: job %s has an expression in a script, want a variable in env: %s", name, job, step.Run)
			}
		}
	}
}

// Dependabot doesn't find modules by itself. dependabot.yml must list every module.
func TestEveryModuleIsKeptUpToDate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root(t), ".github", "dependabot.yml"))
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Updates []struct {
			Ecosystem   string   `json:"package-ecosystem"`
			Directories []string `json:"directories"`
		} `json:"updates"`
	}
	if err = yaml.Unmarshal(text, &config); err != nil {
		t.Fatal(err)
	}
	var listed, ecosystems []string
	for _, update := range config.Updates {
		ecosystems = append(ecosystems, update.Ecosystem)
		if update.Ecosystem == "gomod" {
			listed = append(listed, update.Directories...)
		}
	}
	command := exec.CommandContext(t.Context(), "git", "ls-files", "go.mod", "*/go.mod")
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	var modules []string
	for file := range strings.FieldsSeq(string(output)) {
		if !strings.Contains(file, "/testdata/") {
			modules = append(modules, "/"+strings.TrimPrefix(filepath.Dir(file), "."))
		}
	}
	slices.Sort(listed)
	slices.Sort(modules)
	if !slices.Equal(listed, modules) || len(modules) < 20 {
		t.Errorf("dependabot.yml lists %v, want %v", listed, modules)
	}
	if !slices.Contains(ecosystems, "github-actions") {
		t.Errorf("dependabot.yml updates %v, but no actions", ecosystems)
	}
}

// The forms for bug reports must ask for the archive of "kubectl windows bundle", because without the archive,
// maintainers have to ask more questions.
func TestFormsAskForTheArchive(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"bug.yml", "feature.yml", "real-windows.yml"} {
		text, err := os.ReadFile(filepath.Join(root(t), ".github", "ISSUE_TEMPLATE", name))
		if err != nil {
			t.Fatal(err)
		}
		form := struct {
			Name, Description string
			Body              []map[string]any
		}{}
		if err = yaml.Unmarshal(text, &form); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if form.Name == "" || form.Description == "" || len(form.Body) == 0 ||
			!strings.Contains(string(text), "kubectl windows bundle") {
			t.Errorf("%s does not ask for the archive of kubectl windows bundle", name)
		}
	}
}
