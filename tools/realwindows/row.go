package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// verdict is the result of a row.
type verdict string

// Verdicts, as in wmco-e2e.
const (
	shown   verdict = "shown"
	failed  verdict = "failed"
	unshown verdict = "can't be shown"
)

// row is a line of the table.
type row struct {
	What    string
	Verdict verdict
	Why     string `json:",omitempty"`
}

// unshowableError is the reason why this machine can't show something. It doesn't count as a failure.
type unshowableError struct{ why string }

// Error returns the reason.
func (u *unshowableError) Error() string { return u.why }

func cannot(format string, args ...any) error { return &unshowableError{fmt.Sprintf(format, args...)} }

// table collects rows. It writes them to a file after each new row, so that they remain if the machine crashes.
type table struct {
	path string
	out  io.Writer
	Rows []row
}

// errFailed means that rows failed. The rows contain the reasons.
var errFailed = errors.New("rows failed")

// try runs a step and adds its row. It reports whether the step succeeded.
func (t *table) try(what string, step func() error) bool {
	fmt.Fprintf(t.out, "== %s\n", what)
	err := step()
	one := row{What: what, Verdict: shown}
	unshowable := (*unshowableError)(nil)
	switch {
	case errors.As(err, &unshowable):
		one.Verdict, one.Why = unshown, unshowable.why
	case err != nil:
		one.Verdict, one.Why = failed, err.Error()
	}
	t.add(one)
	return err == nil
}

// skip adds rows for steps that can't run because another step failed.
func (t *table) skip(why string, steps ...string) {
	for _, what := range steps {
		t.add(row{What: what, Verdict: unshown, Why: why})
	}
}

func (t *table) add(one row) {
	fmt.Fprintf(t.out, "%s: %s %s\n", one.What, one.Verdict, one.Why)
	t.Rows = append(t.Rows, one)
	text, err := json.MarshalIndent(t.Rows, "", "  ")
	if err == nil {
		err = keep(filepath.Dir(t.path), filepath.Base(t.path), text)
	}
	if err != nil {
		fmt.Fprintln(t.out, "writing the rows:", err)
	}
}

// keep writes a file to the directory of results, which becomes an artifact.
func keep(results, name string, text []byte) error {
	return os.WriteFile(filepath.Join(results, name), text, 0o644) //nolint:gosec // the next steps of the job read it
}

// err returns errFailed if a row failed.
func (t *table) err() error {
	for _, one := range t.Rows {
		if one.Verdict == failed {
			return errFailed
		}
	}
	return nil
}

// addJUnit adds a row for each test case in the JUnit file of wmco-e2e.
func (t *table) addJUnit(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	type message struct {
		Text string `xml:"message,attr"`
	}
	var read struct {
		Cases []struct {
			Name    string   `xml:"name,attr"`
			Failure *message `xml:"failure"`
			Skipped *message `xml:"skipped"`
		} `xml:"testsuite>testcase"`
	}
	if err = xml.Unmarshal(text, &read); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	for _, c := range read.Cases {
		switch {
		case c.Failure != nil:
			t.add(row{c.Name, failed, c.Failure.Text})
		case c.Skipped != nil:
			t.add(row{c.Name, unshown, c.Skipped.Text})
		default:
			t.add(row{c.Name, shown, ""})
		}
	}
	return nil
}

// summarise prints the table of all rows in a directory as Markdown, for the job's page.
func summarise(out io.Writer, results string) error {
	var all []row
	for _, name := range []string{testRows, runRows} {
		text, err := os.ReadFile(filepath.Join(results, name))
		if os.IsNotExist(err) {
			all = append(all, row{name, failed, "the step ended before it had a row, or did not run"})
			continue
		}
		if err != nil {
			return err
		}
		var rows []row
		if err = json.Unmarshal(text, &rows); err != nil {
			return fmt.Errorf("reading %s: %w", name, err)
		}
		all = append(all, rows...)
	}
	count := map[verdict]int{}
	for _, one := range all {
		count[one.Verdict]++
	}
	fmt.Fprintf(out, "## Real Windows: %d shown, %d failed, %d can't be shown\n\n", count[shown], count[failed],
		count[unshown])
	fmt.Fprint(out, "Please send the artifact of this job: open an issue with the form \"A run on real Windows\". "+
		"It has no secrets, but look through it first.\n\n| Row | Verdict | Why |\n| --- | --- | --- |\n")
	for _, v := range []verdict{failed, shown, unshown} {
		for _, one := range all {
			if one.Verdict == v {
				fmt.Fprintf(out, "| %s | %s | %s |\n", cell(one.What), v, cell(one.Why))
			}
		}
	}
	return nil
}

// cell returns the text of a table cell: one short line without markup.
func cell(text string) string {
	const most = 300
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text)
}
