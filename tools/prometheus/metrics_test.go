package prometheus

import (
	"encoding/json"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

// dashboard contains the fields of the dashboard's JSON that the tests read.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
	Rows []struct {
		Title  string
		Panels []panel
	}
}

type panel struct {
	ID          int
	Type, Title string
	Datasource  string
	Targets     []struct{ Expr, RefID, Format string }
}

func theDashboard(t *testing.T) dashboard {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config", "dashboard", "openshift", "windows-nodes.json"))
	if err != nil {
		t.Fatal(err)
	}
	d := dashboard{}
	if err = json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// labelValues matches the query of a dashboard variable.
var labelValues = regexp.MustCompile(`^label_values\((.*), ([a-z_]+)\)$`)

// queries returns all queries of the rules and the dashboard, by their place.
func queries(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, file := range []string{"alerts.yaml", "rules.yaml"} {
		rules, _ := groups(t, file)
		for _, r := range rules {
			all[file+" "+r.Alert+r.Record] = r.Expr
		}
	}
	d := theDashboard(t)
	for _, row := range d.Rows {
		for _, p := range row.Panels {
			for _, target := range p.Targets {
				all["dashboard "+row.Title+": "+p.Title+" "+target.RefID] = target.Expr
			}
		}
	}
	for _, variable := range d.Templating.List {
		if variable.Type != "query" {
			continue
		}
		query := labelValues.FindStringSubmatch(variable.Query)
		if query == nil {
			t.Fatalf("the variable %s has the query %q", variable.Name, variable.Query)
		}
		all["dashboard variable "+variable.Name] = query[1]
	}
	return all
}

// asked returns the metrics that the queries read, each with the place of one query.
func asked(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for where, query := range queries(t) {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(query)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		for _, selector := range parser.ExtractSelectors(expr) {
			for _, matcher := range selector {
				if matcher.Name == "__name__" {
					all[strings.TrimSuffix(matcher.Value, "_bucket")] = where
				}
			}
		}
	}
	return all
}

// Every query must parse. It may read only metrics that docs/reference/metrics.md explains and that the source of an
// exporting program contains: the operator and the daemon, the exporter in the payload, and kubelet.
func TestA71_QueriesParseAndAskOnlyForMetricsThatAreExported(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(root, "docs", "reference", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	explained := regexp.MustCompile(`(?:wmco|wicd|windows|leader)_[a-z_]+`).FindAllString(string(page), -1)
	ours := literals(t, filepath.Join(root, "internal"))
	kubernetes := module(t, "lab/controlplane", "k8s.io/kubernetes")
	kubelet := literals(t, filepath.Join(kubernetes, "pkg", "kubelet"))
	maps.Copy(kubelet, literals(t, filepath.Join(kubernetes, "cmd", "kubelet")))
	library := literals(t, filepath.Join(module(t, ".", "sigs.k8s.io/controller-runtime"), "pkg", "metrics"))
	exporter := exported(t)
	others := []string{"up", "kube_pod_container_info", "kube_pod_info"} // metrics of Prometheus and kube-state-metrics
	recorded, _ := groups(t, "rules.yaml")
	for _, r := range recorded {
		others = append(others, r.Record)
	}
	// Newer exporters have this metric among the memory metrics. The rule accepts both.
	newer := []string{"windows_memory_physical_total_bytes"}
	names := asked(t)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		prefix, rest, _ := strings.Cut(name, "_")
		exists := slices.Contains(others, name)
		switch prefix {
		case "wmco", "wicd":
			exists = ours[name] && slices.Contains(explained, name)
		case "leader":
			exists = library[name] && slices.Contains(explained, name)
		case "windows":
			exists = (exporter[name] || slices.Contains(newer, name)) && slices.Contains(explained, name)
		case "kubelet":
			exists = kubelet[rest]
		}
		if !exists {
			t.Errorf("%s reads %s, which no program exports, or which docs/reference/metrics.md lacks", names[name],
				name)
		}
	}
	if len(names) < 25 {
		t.Errorf("the queries read only %d metrics", len(names))
	}
}

// Every metric of the lab's stand-in for the exporter must also be a metric of the real exporter.
func TestA37_TheLabsExporterHasTheNamesOfTheRealOne(t *testing.T) {
	t.Parallel()
	exporter, served := exported(t), 0
	for name := range literals(t, filepath.Join(root, "lab", "sim", "program")) {
		if !strings.HasPrefix(name, "windows_") || name == "windows_exporter" {
			continue
		}
		served++
		if !exporter[name] {
			t.Errorf("no collector that is enabled on nodes has the metric %s", name)
		}
	}
	if served < 14 {
		t.Errorf("the stand-in serves only %d metrics", served)
	}
}

// OpenShift's console can draw only these kinds of panels in rows. The Grafana dashboard is generated from the same
// panels.
func TestA71_TheDashboardHasWhatBothOfItsReadersDraw(t *testing.T) {
	t.Parallel()
	ids := map[int]bool{}
	for _, row := range theDashboard(t).Rows {
		for _, p := range row.Panels {
			if p.Title == "" || p.Datasource != "$datasource" || len(p.Targets) == 0 || ids[p.ID] ||
				!slices.Contains([]string{"graph", "singlestat", "table"}, p.Type) {
				t.Errorf("panel %d, %q of %s: %+v", p.ID, p.Title, row.Title, p)
			}
			ids[p.ID] = true
		}
	}
	if len(ids) < 10 {
		t.Errorf("there are %d panels", len(ids))
	}
}

// module returns the source directory of a module that another module of this repository pins.
func module(t *testing.T, of, path string) string {
	t.Helper()
	run := func(args ...string) []byte {
		c := exec.CommandContext(t.Context(), "go", args...)
		c.Dir = filepath.Join(root, filepath.FromSlash(of))
		output, err := c.Output()
		if err != nil {
			t.Fatalf("go %v: %v", args, err)
		}
		return output
	}
	version := strings.TrimSpace(string(run("list", "-m", "-f", "{{.Version}}", path)))
	var found struct{ Dir string }
	if err := json.Unmarshal(run("mod", "download", "-json", path+"@"+version), &found); err != nil {
		t.Fatal(err)
	}
	return found.Dir
}

var literal = regexp.MustCompile(`"([a-z][a-z0-9_]+)"`)

// literals returns all quoted words in the Go source of a directory.
func literals(t *testing.T, dir string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		for _, match := range literal.FindAllStringSubmatch(string(content), -1) {
			all[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// exported returns the metrics of the collectors that are enabled on nodes.
func exported(t *testing.T) map[string]bool {
	t.Helper()
	rendered, err := os.ReadFile(filepath.Join(root, "internal", "blueprint", "exporter.go"))
	if err != nil {
		t.Fatal(err)
	}
	collectors := filepath.Join(module(t, "payload/exporter", "github.com/prometheus-community/windows_exporter"), "pkg",
		"collector")
	entries, err := os.ReadDir(collectors)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	for _, entry := range entries {
		enabled := regexp.MustCompile(`\b` + entry.Name() + `\b`).Match(rendered)
		if !entry.IsDir() || !enabled {
			continue
		}
		for name := range literals(t, filepath.Join(collectors, entry.Name())) {
			all["windows_"+entry.Name()+"_"+name] = true
		}
		source, err := os.ReadFile(filepath.Join(collectors, entry.Name(), entry.Name()+".go"))
		if err != nil {
			t.Fatal(err)
		}
		all["windows_"+entry.Name()] = strings.Contains(string(source), `BuildFQName(types.Namespace, "", Name)`)
	}
	return all
}
