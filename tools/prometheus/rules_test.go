package prometheus

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

const root = "../.."

// rule is one rule of a PrometheusRule.
type rule struct {
	Record, Alert, Expr string
	Annotations         map[string]string
}

// groups reads the rules of a manifest. It also returns their text in the form that promtool reads.
func groups(t *testing.T, file string) (rules []rule, text []byte) {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config", "monitoring", file))
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Spec map[string]any
	}
	var typed struct {
		Spec struct {
			Groups []struct{ Rules []rule }
		}
	}
	if err = yaml.Unmarshal(content, &manifest); err != nil {
		t.Fatal(err)
	}
	if err = yaml.Unmarshal(content, &typed); err != nil {
		t.Fatal(err)
	}
	for _, group := range typed.Spec.Groups {
		rules = append(rules, group.Rules...)
	}
	if text, err = yaml.Marshal(manifest.Spec); err != nil || len(rules) < 5 {
		t.Fatalf("%s has %d rules: %v", file, len(rules), err)
	}
	return rules, text
}

func TestA70_EachAlertFiresAndFallsSilent(t *testing.T) {
	t.Parallel()
	tests := promtool(t, "alerts_test.yaml")
	alerts, _ := groups(t, "alerts.yaml")
	for _, alert := range alerts {
		if !strings.Contains(tests, "- name: "+alert.Alert+"\n") {
			t.Errorf("alert %s has no test", alert.Alert)
		}
	}
}

// An attacker who controls the metrics of one node must not be able to hide alerts or records of other nodes or of the
// operator. Therefore, every query must select a job.
func TestA53_AHostileNodeEndsNoAlertOrRecordAndHasNoneOfOthers(t *testing.T) {
	t.Parallel()
	promtool(t, "hostile_test.yaml")
	for _, file := range []string{"alerts.yaml", "rules.yaml"} {
		rules, _ := groups(t, file)
		for _, r := range rules {
			expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
			if err != nil {
				t.Fatal(err)
			}
			for _, selector := range parser.ExtractSelectors(expr) {
				if !slices.ContainsFunc(selector, func(m *labels.Matcher) bool {
					return m.Name == "job" && m.Type == labels.MatchEqual
				}) {
					t.Errorf("rule %s%s reads %v of every job", r.Alert, r.Record, selector)
				}
			}
		}
	}
}

// promtool checks all rules with promtool, runs a file of rule tests, and returns the file's content.
func promtool(t *testing.T, file string) string {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "promtool")
	// The flags are the same as for the lab's Prometheus, so that its compiled packages are used.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-gcflags=all=-dwarf=false", "-tags",
		"remove_all_sd", "-o", program, "github.com/prometheus/prometheus/cmd/promtool")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building promtool: %v\n%s", err, output)
	}
	_, alerts := groups(t, "alerts.yaml")
	_, recorded := groups(t, "rules.yaml")
	tests, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"alerts.rules.yaml": alerts, "recording.rules.yaml": recorded,
		"test.yaml": tests} {
		if err = os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"check", "rules", "--lint-fatal", "alerts.rules.yaml", "recording.rules.yaml"},
		{"test", "rules", "test.yaml"}} {
		c := exec.CommandContext(t.Context(), program, args...)
		c.Dir = dir
		if output, err := c.CombinedOutput(); err != nil {
			t.Errorf("promtool %v: %v\n%s", args, err, output)
		}
	}
	return string(tests)
}

// Every alert must have a section on the runbook page, and the section must end with a command.
func TestA70_EachAlertNamesItsObjectAndHasARunbook(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "alerts.md"))
	if err != nil {
		t.Fatal(err)
	}
	alerts, _ := groups(t, "alerts.yaml")
	for _, alert := range alerts {
		_, section, found := strings.Cut(string(page), "\n## "+alert.Alert+"\n")
		section, _, _ = strings.Cut(section, "\n## ")
		section, _, _ = strings.Cut(section, "\nNext: ")
		lines := strings.Split(strings.TrimRight(section, "\n"), "\n")
		if !found || !strings.HasPrefix(lines[len(lines)-1], "    kubectl ") {
			t.Errorf("docs/alerts.md has no section %s that ends in a command", alert.Alert)
		}
		if !strings.HasSuffix(alert.Annotations["runbook_url"], "/docs/alerts.md#"+strings.ToLower(alert.Alert)) {
			t.Errorf("alert %s has the runbook_url %q", alert.Alert, alert.Annotations["runbook_url"])
		}
		if alert.Annotations["summary"] == "" || alert.Annotations["description"] == "" {
			t.Errorf("alert %s lacks a summary or a description", alert.Alert)
		}
	}
	if sections := strings.Count(string(page), "\n## "); sections != len(alerts) {
		t.Errorf("docs/alerts.md has %d sections for %d alerts", sections, len(alerts))
	}
}
