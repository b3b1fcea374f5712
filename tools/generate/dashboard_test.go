package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// TestGrafanasDashboardHasEveryQueryInACurrentPanel compares the dashboard for OpenShift's console with the dashboard
// for Grafana. Both must have the same queries. Grafana's dashboard must have only current panel types, and its panels
// must not overlap.
func TestGrafanasDashboardHasEveryQueryInACurrentPanel(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	content, err := os.ReadFile(filepath.Join(root, "config", "dashboard", "openshift", "windows-nodes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var console consoleDashboard
	if err = json.Unmarshal(content, &console); err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, row := range console.Rows {
		for _, p := range row.Panels {
			for _, target := range p.Targets {
				want = append(want, fmt.Sprint(p.Title, ": ", target["expr"]))
			}
		}
	}
	text, err := grafanaDashboard(root)
	if err != nil {
		t.Fatal(err)
	}
	var grafana struct {
		Panels []struct {
			Type, Title string
			GridPos     struct{ X, Y, W, H int }
			Targets     []struct{ Expr string }
		}
	}
	if err = json.Unmarshal(text, &grafana); err != nil {
		t.Fatal(err)
	}
	var have []string
	taken := map[[2]int]string{}
	for _, p := range grafana.Panels {
		if !slices.Contains([]string{"row", "stat", "timeseries", "table"}, p.Type) {
			t.Errorf("%s has the type %q, which Grafana does not have", p.Title, p.Type)
		}
		for _, target := range p.Targets {
			have = append(have, p.Title+": "+target.Expr)
		}
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= grafanaColumns {
					t.Fatalf("panel %s overlaps %s, or it is outside the page", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if !slices.Equal(want, have) || len(want) < 15 {
		t.Errorf("the console's dashboard has %d queries, Grafana's has %d:\n%q\n%q", len(want), len(have), want, have)
	}
}
