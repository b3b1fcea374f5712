package diagnosis

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"
	"time"
)

// Page is a web page with the state of the fleet. It needs no other files.
type Page struct {
	Now time.Time
	// Status is nil if the status couldn't be read.
	Status *Status
	// Clean removes secrets and control characters from texts that hosts and users wrote.
	Clean func(text string) string
	// Missing lists the parts of a bundle that couldn't be read. Files lists the files of the bundle. Both are for the
	// index of the bundle.
	Missing, Files []string
}

//go:embed page.html
var pageText string

// Write writes the page as HTML. The template escapes all texts.
func (p *Page) Write(out io.Writer) error {
	lines := paper{Style: Style{Now: p.Now}}
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"clean": p.Clean, "age": lines.age, "bad": isBad, "steps": steps,
	}).Parse(pageText)).Execute(out, p)
}

// Time returns when the page was created.
func (p *Page) Time() string { return p.Now.UTC().Format(time.RFC3339) }

// ByState returns the hosts by their states: the failing hosts, then the waiting hosts, then the Ready hosts.
func (s *Status) ByState() []Host {
	order := []string{stateFailing, stateWaiting, stateReady}
	return slices.SortedStableFunc(slices.Values(s.Hosts), func(a, b Host) int {
		return cmp.Compare(slices.Index(order, a.State()), slices.Index(order, b.State()))
	})
}
