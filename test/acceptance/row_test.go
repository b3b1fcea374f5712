package acceptance

import (
	"bytes"
	"encoding/xml"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestA76_EveryRowOfThePageIsTriedOrSaysWhyNot(t *testing.T) {
	t.Parallel()
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) < 60 {
		t.Errorf("the page has %d rows", len(rows))
	}
	for _, row := range rows {
		if (row.try == nil) == (row.why == "") || row.Section == "" || row.Title == "" {
			t.Errorf("row %s (%q in section %q): has a trial: %t; reason without a trial: %q", row.Number, row.Title,
				row.Section, row.try != nil, row.why)
		}
	}
}

func TestVerdictsAreNotConfused(t *testing.T) {
	t.Parallel()
	for want, err := range map[Verdict]error{Shown: nil, Failed: errors.New("broken"), Unshown: cannot("there is none")} {
		if got, _ := judge(err); got != want {
			t.Errorf("%v is %q, want %q", err, got, want)
		}
	}
	// If a row has one failure and one error that says it can't be shown, the verdict is a failure.
	if got, _ := judge(errors.Join(errors.New("broken"), cannot("there is none"))); got != Failed {
		t.Errorf("a failure together with an unshowable part has the verdict %q", got)
	}
}

func TestA76_ResultsAreJUnitsAndAPage(t *testing.T) {
	t.Parallel()
	rows, err := Rows()
	if err != nil {
		t.Fatal(err)
	}
	report := Report{Began: time.Unix(0, 0), Took: time.Minute, Results: []Result{
		{Row: rows[0], Verdict: Shown, Notes: []string{"<b>found</b>"}},
		{Row: rows[1], Verdict: Failed, Reason: "node \"a\" & b\x1b[31m"}, {Row: rows[2], Verdict: Unshown, Reason: "no hosts"}}}
	var junit, html bytes.Buffer
	if err = errors.Join(report.JUnit(&junit), report.HTML(&html)); err != nil {
		t.Fatal(err)
	}
	var read junitSuites
	if err = xml.Unmarshal(junit.Bytes(), &read); err != nil {
		t.Fatalf("%v: %s", err, junit.String())
	}
	if read.Tests != 3 || read.Failures != 1 || read.Skipped != 1 || len(read.Suite.Cases) != 3 ||
		read.Suite.Cases[1].Failure == nil || read.Suite.Cases[2].Skipped == nil || read.Suite.Cases[0].Failure != nil {
		t.Errorf("JUnit's XML is %s", junit.String())
	}
	for _, want := range []string{"1 rows shown, 1 failed, 1 can&#39;t be shown here", "&lt;b&gt;found", rows[2].Number,
		`class="cant-be-shown-here"`} {
		if !strings.Contains(html.String(), want) {
			t.Errorf("the page lacks %q: %s", want, html.String())
		}
	}
}
