package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// consoleDashboard is the part of the dashboard for OpenShift's console that Grafana needs. The console knows only
// panels of the types singlestat, graph and table. Grafana 12 no longer has the first two.
type consoleDashboard struct {
	Title, UID, Refresh, Timezone string
	Tags                          []string
	Time                          map[string]string
	Templating                    struct{ List []map[string]any }
	Rows                          []struct {
		Title  string
		Panels []consolePanel
	}
}

type consolePanel struct {
	ID                       int
	Type, Title, Description string
	Span                     int
	Targets                  []map[string]any
	Format                   string
	YAxes                    []struct {
		Format string
		Min    *float64
	}
	Styles []struct{ Pattern, Type, Alias string }
}

// grafanaColumns is the width of a dashboard of Grafana. A row of the console has 12 spans.
const grafanaColumns = 24

// grafanaDashboard converts the dashboard for OpenShift's console to current panel types.
func grafanaDashboard(root string) ([]byte, error) {
	from := filepath.Join(root, "config", "dashboard", "openshift", "windows-nodes.json")
	content, err := os.ReadFile(from) //nolint:gosec // a file of this repository
	if err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	var console consoleDashboard
	if err = json.Unmarshal(content, &console); err != nil {
		return nil, fmt.Errorf("reading the dashboard: %w", err)
	}
	source := map[string]any{"type": "prometheus", "uid": "${datasource}"}
	for _, variable := range console.Templating.List {
		if variable["type"] == "query" {
			variable["datasource"], variable["definition"] = source, variable["query"]
		}
	}
	var panels []any
	x, y, height := 0, 0, 0
	for i, row := range console.Rows {
		y += height
		panels = append(panels, map[string]any{"id": 100 + i, "type": "row", "title": row.Title, "collapsed": false,
			"gridPos": map[string]int{"x": 0, "y": y, "w": grafanaColumns, "h": 1}, "panels": []any{}})
		x, y, height = 0, y+1, 0
		for _, p := range row.Panels {
			width := p.Span * grafanaColumns / 12
			if x+width > grafanaColumns {
				x, y, height = 0, y+height, 0
			}
			high := map[string]int{"singlestat": 4}[p.Type]
			if high == 0 {
				high = 8
			}
			height = max(height, high)
			panel := p.grafana()
			panel["datasource"] = source
			panel["gridPos"] = map[string]int{"x": x, "y": y, "w": width, "h": high}
			panels = append(panels, panel)
			x += width
		}
	}
	text, err := json.MarshalIndent(map[string]any{"title": console.Title, "uid": console.UID, "tags": console.Tags,
		"schemaVersion": 39, "version": 1, "editable": true, "refresh": console.Refresh, "time": console.Time,
		"timezone": console.Timezone, "templating": map[string]any{"list": console.Templating.List},
		"annotations": map[string]any{"list": []any{}}, "links": []any{}, "panels": panels}, "", " ")
	return append(text, '\n'), err
}

// grafana returns a panel without its place and its source of data.
func (p *consolePanel) grafana() map[string]any {
	unit, least := p.Format, (*float64)(nil)
	if len(p.YAxes) > 0 {
		unit, least = p.YAxes[0].Format, p.YAxes[0].Min
	}
	defaults := map[string]any{"unit": unit}
	if least != nil {
		defaults["min"] = *least
	}
	panel := map[string]any{"id": p.ID, "title": p.Title, "description": p.Description, "targets": p.Targets,
		"fieldConfig": map[string]any{"defaults": defaults, "overrides": []any{}}}
	switch p.Type {
	case "singlestat":
		panel["type"] = "stat"
		panel["options"] = map[string]any{"colorMode": "none", "graphMode": "none", "reduceOptions": map[string]any{
			"calcs": []string{"lastNotNull"}}}
	case "graph":
		panel["type"] = "timeseries"
		defaults["custom"] = map[string]any{"lineWidth": 1, "fillOpacity": 10, "spanNulls": false}
		panel["options"] = map[string]any{"legend": map[string]any{"showLegend": true, "displayMode": "list",
			"placement": "bottom"}, "tooltip": map[string]any{"mode": "multi"}}
	case "table":
		panel["type"] = "table"
		hidden, names := map[string]bool{}, map[string]string{}
		for _, s := range p.Styles {
			if s.Type == "hidden" {
				hidden[s.Pattern] = true
			} else {
				names[s.Pattern] = s.Alias
			}
		}
		panel["transformations"] = []any{map[string]any{"id": "organize", "options": map[string]any{
			"excludeByName": hidden, "renameByName": names}}}
	}
	return panel
}
