package prometheus

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

var update = flag.Bool("update", false, "write docs/dashboard.svg")

// grafanaPanel contains the fields of a panel of Grafana's dashboard that the picture shows.
type grafanaPanel struct {
	Type, Title string
	GridPos     struct{ X, Y, W, H float64 }
	FieldConfig struct {
		Defaults struct {
			Unit string
			Min  *float64
		}
	}
	Transformations []struct {
		Options struct {
			ExcludeByName map[string]bool
			RenameByName  map[string]string
		}
	}
	Targets []struct{ Expr, LegendFormat string }
}

// recording contains the metrics of a lab run.
type recording struct {
	began, ended time.Time
	step         time.Duration
	series       []storage.Series
	engine       *promql.Engine
}

// readRecording reads testdata/lab.metrics. The file has the times in its first lines, and then one series per line,
// in the notation of promtool's tests.
func readRecording(t *testing.T) *recording {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("testdata", "lab.metrics"))
	if err != nil {
		t.Fatal(err)
	}
	r := &recording{engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})}
	began, step := int64(0), 0
	for line := range strings.Lines(string(content)) {
		if n, _ := fmt.Sscanf(line, "# Start: %d. Interval in seconds: %d.", &began, &step); n == 2 {
			r.began, r.step = time.Unix(began, 0), time.Duration(step)*time.Second
		}
		if line[0] == '#' {
			continue
		}
		found, values, err := parser.NewParser(parser.Options{}).ParseSeriesDesc(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		s := promql.Series{Metric: found}
		for i, v := range values {
			r.ended = r.began.Add(time.Duration(i) * r.step)
			if !v.Omitted {
				s.Floats = append(s.Floats, promql.FPoint{T: r.ended.UnixMilli(), F: v.Value})
			}
		}
		r.series = append(r.series, promql.NewStorageSeries(s))
	}
	return r
}

// seriesSet implements storage.SeriesSet.
type seriesSet struct {
	all  []storage.Series
	next int
}

func (s *seriesSet) Next() bool                      { s.next++; return s.next <= len(s.all) }
func (s *seriesSet) At() storage.Series              { return s.all[s.next-1] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }
func (r *recording) queryable() *storage.MockQueryable {
	return &storage.MockQueryable{MockQuerier: &storage.MockQuerier{SelectMockFunction: func(_ bool,
		_ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		return &seriesSet{all: slices.DeleteFunc(slices.Clone(r.series), func(s storage.Series) bool {
			return slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(s.Labels().Get(m.Name)) })
		})}
	}}}
}

// query evaluates a query of the dashboard for all nodes, over the whole recording. It returns one curve per result.
func (r *recording) query(t *testing.T, expr string) promql.Matrix {
	t.Helper()
	q, err := r.engine.NewRangeQuery(context.Background(), r.queryable(), nil, strings.ReplaceAll(expr, "$node", ".*"),
		r.began, r.ended, r.step)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	result, err := q.Exec(t.Context()).Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return result
}

// picture draws a dashboard as Grafana arranges it.
type picture struct {
	*testing.T
	*recording
	bytes.Buffer
}

const (
	pictureWidth = 1200
	// column and line are the size of a cell of Grafana's grid. top is the height above the grid.
	column, line, top = (pictureWidth - 20) / 24.0, 26, 76
	gap               = 8
	fontSize          = 11
	// fontWidth is the width of a character in the widest common font. The house tests check it.
	fontWidth = 0.63 * fontSize
)

// colours have enough contrast on white.
var colours = []string{"#14713d", "#b4530a", "#1f5fa8", "#8a3ffc", "#a2191f", "#005d5d", "#9f1853", "#57606a"}

func escape(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}

// write writes a text. style contains additional attributes.
func (p *picture) write(x, y float64, size int, style, text string) {
	fmt.Fprintf(p, `  <text x="%.0f" y="%.0f" font-size="%d" %s>%s</text>`+"\n", x, y, size, style, escape(text))
}

// wrap breaks words into lines that fit into a width.
func wrap(words []string, width float64) (lines []string) {
	for _, word := range words {
		if n := len(lines); n > 0 && float64(len(lines[n-1])+1+len(word))*fontWidth <= width {
			lines[n-1] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}

const grey, dark = `fill="#46566a"`, `fill="#1d2733"`

// draw draws a panel with its results.
func (p *picture) draw(panel grafanaPanel) {
	x, y := 10+panel.GridPos.X*column+gap/2, top+panel.GridPos.Y*line
	w, h := panel.GridPos.W*column-gap, panel.GridPos.H*line-gap
	if panel.Type == "row" {
		p.write(x, y+18, 15, `font-weight="600" `+dark, panel.Title)
		return
	}
	fmt.Fprintf(p, `  <rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="4" fill="#f7f9fb" stroke="#d5dce4"/>`+"\n",
		x, y, w, h)
	p.write(x+10, y+20, 13, `font-weight="600" `+dark, panel.Title)
	switch panel.Type {
	case "stat":
		text := "No data"
		for _, s := range p.query(p.T, panel.Targets[0].Expr) {
			if last, ok := p.last(s); ok {
				size, unit := scale(last, panel.FieldConfig.Defaults.Unit)
				text = fmt.Sprintf("%.3g%s", last/size, unit)
			}
		}
		p.write(x+w/2, y+h/2+22, 28, `text-anchor="middle" font-weight="600" fill="#14713d"`, text)
	case "table":
		p.table(panel, x+10, y+42, w-20)
	case "timeseries":
		p.graph(panel, x+10, y+34, w-20, h-40)
	default:
		p.Fatalf("the picture can't show a panel of the type %s", panel.Type)
	}
}

// last returns the value of a curve at the end of the recording.
func (r *recording) last(s promql.Series) (float64, bool) {
	if n := len(s.Floats); n > 0 && s.Floats[n-1].T == r.ended.UnixMilli() {
		return s.Floats[n-1].F, true
	}
	return 0, false
}

// table draws the labels of the results at the end of the recording.
func (p *picture) table(panel grafanaPanel, x, y, w float64) {
	var rows []map[string]string
	names := map[string]bool{}
	for _, s := range p.query(p.T, panel.Targets[0].Expr) {
		if _, ok := p.last(s); !ok {
			continue
		}
		rows = append(rows, s.Metric.Map())
		for name := range s.Metric.Map() {
			names[name] = true
		}
	}
	if len(rows) == 0 {
		p.write(x+w/2, y+40, 13, `text-anchor="middle" `+grey, "No data")
		return
	}
	options := panel.Transformations[0].Options
	shown := slices.DeleteFunc(slices.Sorted(maps.Keys(names)), func(n string) bool { return options.ExcludeByName[n] })
	for i, name := range shown {
		at := x + w*float64(i)/float64(len(shown))
		p.write(at, y, fontSize, grey, cmp.Or(options.RenameByName[name], name))
		for j, row := range rows {
			p.write(at, y+float64(j+1)*20, fontSize, dark, row[name])
		}
	}
}

// curve is one line of a graph. Its points are in parts, with a gap where there is no value.
type curve struct {
	name  string
	parts [][]promql.FPoint
}

// curves returns the lines of a graph.
func (p *picture) curves(panel grafanaPanel) (all []curve, most float64) {
	for _, target := range panel.Targets {
		for _, s := range p.query(p.T, target.Expr) {
			c := curve{name: regexp.MustCompile(`\{\{(\w+)\}\}`).ReplaceAllStringFunc(target.LegendFormat,
				func(l string) string { return s.Metric.Get(strings.Trim(l, "{}")) })}
			before := int64(0)
			for _, f := range s.Floats {
				if math.IsNaN(f.F) || value.IsStaleNaN(f.F) || math.IsInf(f.F, 0) {
					continue
				}
				if f.T-before > p.step.Milliseconds() {
					c.parts = append(c.parts, nil)
				}
				n := len(c.parts) - 1
				c.parts[n] = append(c.parts[n], f)
				before, most = f.T, max(most, f.F)
			}
			if len(c.parts) > 0 {
				all = append(all, c)
			}
		}
	}
	slices.SortFunc(all, func(a, b curve) int { return strings.Compare(a.name, b.name) })
	return all, most
}

// graph draws the results over time, with a legend.
func (p *picture) graph(panel grafanaPanel, x, y, w, h float64) {
	all, most := p.curves(panel)
	if len(all) == 0 {
		p.write(x+w/2, y+h/2, 13, `text-anchor="middle" `+grey, "No data")
		return
	}
	entries := make([][2]float64, len(all))
	left, bottom := 0.0, 0.0
	for i, c := range all {
		width := float64(len(c.name))*fontWidth + 30
		if left > 0 && left+width > w {
			left, bottom = 0, bottom+16
		}
		entries[i] = [2]float64{left, bottom}
		left += width
	}
	height := h - bottom - 42
	from, to := x+70, x+w-30
	size, unit := scale(most, panel.FieldConfig.Defaults.Unit)
	most = size * ceiling(most/size)
	for i := range 3 {
		at := y + 8 + height*float64(i)/2
		fmt.Fprintf(p, `  <path d="M%.0f %.1fH%.0f" stroke="#d5dce4"/>`+"\n", from, at, to)
		p.write(x, at+4, fontSize, grey, fmt.Sprintf("%.3g%s", most*float64(2-i)/2/size, unit))
	}
	length := p.ended.Sub(p.began)
	for minute := time.Duration(0); minute <= length; minute += time.Minute {
		at := from + (to-from)*float64(minute)/float64(length)
		p.write(at, y+height+24, fontSize, `text-anchor="middle" `+grey, fmt.Sprintf("%.0f min", minute.Minutes()))
	}
	for i, c := range all {
		colour := colours[i%len(colours)]
		for _, part := range c.parts {
			var points strings.Builder
			for _, f := range part {
				fmt.Fprintf(&points, "%.1f,%.1f ", from+(to-from)*float64(f.T-p.began.UnixMilli())/float64(length.Milliseconds()),
					y+8+height*(1-f.F/most))
			}
			fmt.Fprintf(p, `  <polyline points="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n",
				strings.TrimSpace(points.String()), colour)
		}
		at, below := x+entries[i][0], y+height+40+entries[i][1]
		fmt.Fprintf(p, `  <path d="M%.0f %.0fh12" stroke="%s" stroke-width="3"/>`+"\n", at, below-4, colour)
		p.write(at+16, below, fontSize, dark, c.name)
	}
}

// scale chooses the part of a unit of Grafana for a value, such as KiB or MiB for bytes: the largest part that isn't
// larger than the value. It returns the size and the name of this part.
func scale(v float64, unit string) (size float64, name string) {
	parts := map[string][]struct {
		size float64
		name string
	}{
		"percentunit": {{0.01, " %"}}, "s": {{24 * 3600, " days"}, {1, " s"}},
		"bytes": {{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1, " B"}}, "Bps": {{1e6, " MB/s"}, {1e3, " kB/s"}, {1, " B/s"}},
	}[unit]
	for _, part := range parts {
		if size, name = part.size, part.name; v >= size {
			return size, name
		}
	}
	return cmp.Or(size, 1), name
}

// ceiling returns a round number that is not below the argument.
func ceiling(most float64) float64 {
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, factor := range []float64{1, 2, 4, 6, 8} {
		if factor*power >= most {
			return factor * power
		}
	}
	return 10 * power
}

// The picture of the dashboard in the documents must show each panel of Grafana's dashboard, with the results of its
// queries. Prometheus' engine evaluates the queries over the metrics of a lab run. To draw the picture again, run
// go test -run Picture -update.
func TestA71_ThePictureShowsEachPanelOfTheDashboardWithDataOfALabRun(t *testing.T) {
	t.Parallel()
	content, err := os.ReadFile(filepath.Join(root, "config", "dashboard", "grafana", "windows-nodes.json"))
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Title  string
		Panels []grafanaPanel
	}
	if err = json.Unmarshal(content, &d); err != nil {
		t.Fatal(err)
	}
	p := &picture{T: t, recording: readRecording(t)}
	p.write(20, 36, 20, `font-weight="600" `+dark, d.Title)
	height := 0.0
	for _, note := range wrap(strings.Fields(fmt.Sprintf("%.1f minutes of a run with simulated hosts. CPU, memory, disk "+
		"and network are constant there, and their kubelets don't count pods.", p.ended.Sub(p.began).Minutes())),
		pictureWidth-40) {
		p.write(20, 58+height, fontSize, grey, note)
		height += 16
	}
	for _, panel := range d.Panels {
		p.draw(panel)
		height = max(height, panel.GridPos.Y+panel.GridPos.H)
	}
	drawn := fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d"`+
		` role="img" aria-labelledby="title" font-family="system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif">
  <title id="title">The dashboard Windows nodes</title>
  <!-- tools/prometheus draws it: go test -run Picture -update. It has its own background for dark pages. -->
  <rect x="0" y="0" width="%[1]d" height="%[2]d" rx="12" fill="#ffffff"/>
%[3]s</svg>
`, pictureWidth, top+int(height)*line+10, p.Buffer.String())
	file := filepath.Join(root, "docs", "dashboard.svg")
	if *update {
		if err = os.WriteFile(file, drawn, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(have, drawn) {
		t.Errorf("docs/dashboard.svg does not show the dashboard (%v): run go test -run Picture -update", err)
	}
	for _, panel := range d.Panels {
		if !bytes.Contains(have, []byte(">"+escape(panel.Title)+"</text>")) {
			t.Errorf("the picture lacks the panel %q", panel.Title)
		}
	}
	if missing := bytes.Count(have, []byte(">No data</text>")); missing > 1 {
		t.Errorf("%d panels have no data, want only the number of pods", missing)
	}
}
