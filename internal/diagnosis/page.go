package diagnosis

import (
	"cmp"
	_ "embed"
	"html/template"
	"io"
	"slices"
	"time"
)

// Page is the state of the fleet as a web page, which loads nothing else.
type Page struct {
	Now time.Time
	// Status is nil if it couldn't be read.
	Status *Status
	// Clean removes secrets and control characters from texts of hosts and users.
	Clean func(text string) string
	// Missing and Files are for the index of a bundle: the parts that couldn't be read, and the bundle's files.
	Missing, Files []string
}

//go:embed page.html
var pageText string

// Write writes the page. The template escapes all texts.
func (p *Page) Write(out io.Writer) error {
	lines := paper{Style: Style{Now: p.Now}}
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"clean": p.Clean, "age": lines.age, "bad": isBad, "steps": steps,
	}).Parse(pageText)).Execute(out, p)
}

// Time formats the time of the page.
func (p *Page) Time() string { return p.Now.UTC().Format(time.RFC3339) }

// ByState returns the hosts: first the failing hosts, then the waiting hosts, then the Ready hosts.
func (s *Status) ByState() []Host {
	order := []string{stateFailing, stateWaiting, stateReady}
	return slices.SortedStableFunc(slices.Values(s.Hosts), func(a, b Host) int {
		return cmp.Compare(slices.Index(order, a.State()), slices.Index(order, b.State()))
	})
}
