package acceptance

import (
	_ "embed"
	"encoding/xml"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
)

// junitSuites is the root of JUnit's XML, which CI systems read.
type junitSuites struct {
	XMLName  xml.Name   `xml:"testsuites"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Skipped  int        `xml:"skipped,attr"`
	Time     string     `xml:"time,attr"`
	Suite    junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name       string          `xml:"name,attr"`
	Tests      int             `xml:"tests,attr"`
	Failures   int             `xml:"failures,attr"`
	Skipped    int             `xml:"skipped,attr"`
	Time       string          `xml:"time,attr"`
	Timestamp  string          `xml:"timestamp,attr"`
	Properties []junitProperty `xml:"properties>property"`
	Cases      []junitCase     `xml:"testcase"`
}

type junitProperty struct {
	Name  string `xml:"name,attr"`
	Value string `xml:"value,attr"`
}

type junitCase struct {
	Name      string        `xml:"name,attr"`
	Classname string        `xml:"classname,attr"`
	Time      string        `xml:"time,attr"`
	Failure   *junitMessage `xml:"failure,omitempty"`
	Skipped   *junitMessage `xml:"skipped,omitempty"`
	Output    string        `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
}

// JUnit writes the report as JUnit's XML. If a row can't be shown, the XML marks it as skipped.
func (r Report) JUnit(to io.Writer) error {
	suite := junitSuite{Name: "wmco acceptance list", Tests: len(r.Results), Failures: r.Count(Failed),
		Skipped: r.Count(Unshown), Time: seconds(r.Took), Timestamp: r.Began.UTC().Format(time.RFC3339),
		Properties: []junitProperty{{"cluster", r.Cluster.String()}}}
	for _, result := range r.Results {
		one := junitCase{Name: result.Number + " " + result.Title, Classname: result.Section,
			Time: seconds(result.Took)}
		switch result.Verdict {
		case Failed:
			one.Failure = &junitMessage{Message: result.Reason}
		case Unshown:
			one.Skipped = &junitMessage{Message: result.Reason}
		}
		notes := result.Notes
		if len(result.readiness) > 0 {
			notes = append([]string{"categories: " + strings.Join(result.readiness, ", ")}, notes...)
		}
		one.Output = strings.Join(notes, "\n")
		suite.Cases = append(suite.Cases, one)
	}
	text, err := xml.MarshalIndent(junitSuites{Tests: suite.Tests, Failures: suite.Failures, Skipped: suite.Skipped,
		Time: suite.Time, Suite: suite}, "", "  ")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to, "%s%s\n", xml.Header, text)
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }

//go:embed report.html
var page string

// HTML writes the report as a web page.
func (r Report) HTML(to io.Writer) error {
	functions := template.FuncMap{
		"seconds": func(d time.Duration) string { return d.Round(100 * time.Millisecond).String() },
		"class":   func(v Verdict) string { return strings.NewReplacer(" ", "-", "'", "").Replace(string(v)) },
	}
	parsed, err := template.New("report").Funcs(functions).Parse(page)
	if err != nil {
		return err
	}
	return parsed.Execute(to, r)
}

// junitFile is the file name under which CI systems find the results.
const junitFile = "junit.xml"

// files returns the functions that write the report, by file name.
func (r Report) files() map[string]func(to io.Writer) error {
	return map[string]func(to io.Writer) error{junitFile: r.JUnit, "index.html": r.HTML}
}

// Part says which part of the row a run can show. It is empty if a run can show the whole row.
func (r Row) Part() string { return r.shows }

// Categories returns the row's categories in the Windows operational readiness specification.
func (r Row) Categories() string { return strings.Join(r.readiness, ", ") }

// NeverRun reports whether no one has run the row yet on a cluster that can show it.
func (r Row) NeverRun() bool { return r.unrun }

// Summary describes the report in one line.
func (r Report) Summary() string {
	return fmt.Sprintf("%d rows shown, %d failed, %d can't be shown here, in %s", r.Count(Shown), r.Count(Failed),
		r.Count(Unshown), r.Took.Round(time.Second))
}
