package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/scene"
	"github.com/windows-nodes/wmco/lab/sim"
)

// This test makes the whole run of the workflow, with a simulated host instead of the runner.
func TestA90_TheRunOfTheWorkflowIsTriedOnASimulatedHost(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped with -short, because this test starts a control plane")
	}
	t.Parallel()
	dir := t.TempDir()
	o := options{results: dir, simulated: true, patience: 3 * time.Minute, pace: 200 * time.Millisecond,
		only: []string{"A02", "A04", "A12", "A22", "A32", "A39", "H01", "H05"}}
	var err error
	if o.operator, err = scene.BuildOperator(t.Context(), dir, "0.1.0"); err != nil {
		t.Fatal(err)
	}
	if o.next, err = scene.BuildOperator(t.Context(), dir, "0.2.0"); err != nil {
		t.Fatal(err)
	}
	if err = run(t.Context(), os.Stderr, o); err != nil {
		t.Error(err)
	}
	if err = os.WriteFile(filepath.Join(dir, testRows), []byte("[]"), 0o600); err != nil {
		t.Fatal(err)
	}
	var page bytes.Buffer
	if err = summarise(&page, dir); err != nil {
		t.Fatal(err)
	}
	for _, what := range []string{stepPlane, stepHost, stepList, stepJoin, stepUpgrade, stepLeave, stepCompare} {
		if !strings.Contains(page.String(), "| "+what+" | shown |") {
			t.Errorf("%q was not shown:\n%s", what, &page)
		}
	}
	for _, row := range []string{"| A02 ", "| A22 ", "| A32 "} {
		if _, rest, found := strings.Cut(page.String(), row); !found || !strings.Contains(strings.SplitN(rest, "\n", 2)[0], "| shown |") {
			t.Errorf("%s was not shown", row)
		}
	}
	for _, row := range []string{"| A39 ", "| H01 ", "| " + stepPod} {
		if _, rest, found := strings.Cut(page.String(), row); !found || !strings.Contains(strings.SplitN(rest, "\n", 2)[0], "| can't be shown | no container starts") {
			t.Errorf("the reason of %s does not contain that no container starts", row)
		}
	}
	for _, pattern := range []string{"first-hour-*.tar.gz", "before.json", "after.json", "differences.txt", "operator.log", "index.html"} {
		if found, err := filepath.Glob(filepath.Join(dir, pattern)); err != nil || len(found) != 1 {
			t.Errorf("the evidence has the files %v for %s: %v", found, pattern, err)
		}
	}
}

// If the operator leaves an object on a host, or changes it, the comparison must report a difference. Logs and services
// of a logon must not be reported.
func TestA90_WhatAHostKeepsIsADifference(t *testing.T) {
	t.Parallel()
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := simulated{&fleet.Host{Machine: m}}
	before, err := h.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{`C:\k\left.exe`, `C:\ProgramData\left`, `C:\var\log\kubelet\kubelet.log`, cniConfig} {
		if err = write(h, path); err != nil {
			t.Fatal(err)
		}
	}
	if err = h.windows().Environment.Set(t.Context(), "LEFT", "1"); err != nil {
		t.Fatal(err)
	}
	after, err := h.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(differences(before, after), "\n")
	for _, want := range []string{`file c:\k\left.exe`, `file c:\programdata\left: file`, "environment left: 1"} {
		if !strings.Contains(got, want) {
			t.Errorf("the differences lack %q:\n%s", want, got)
		}
	}
	for _, not := range []string{`c:\var\log`, `c:\etc`} {
		if strings.Contains(got, not) {
			t.Errorf("the differences contain %s:\n%s", not, got)
		}
	}
}

func TestA90_EachTestThatFailedOnTheMachineHasARow(t *testing.T) {
	t.Parallel()
	const printed = `{"Action":"output","Package":"github.com/windows-nodes/wmco/internal/a","Test":"TestX","Output":"it broke | here\n"}
{"Action":"fail","Package":"github.com/windows-nodes/wmco/internal/a","Test":"TestX"}
{"Action":"fail","Package":"github.com/windows-nodes/wmco/internal/a"}
{"Action":"pass","Package":"github.com/windows-nodes/wmco/internal/b","Test":"TestY"}
{"Action":"pass","Package":"github.com/windows-nodes/wmco/internal/b"}
{"Action":"skip","Package":"github.com/windows-nodes/wmco/internal/c"}
`
	dir := t.TempDir()
	tests := &table{path: filepath.Join(dir, testRows), out: &bytes.Buffer{}}
	tests.addTests(strings.NewReader(printed))
	if tests.err() == nil || len(tests.Rows) != 4 {
		t.Errorf("the rows are %+v", tests.Rows)
	}
	var page bytes.Buffer
	if err := summarise(&page, dir); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`| internal/a TestX | failed | it broke \| here |`, "| internal/b | shown |  |",
		"| run-rows.json | failed | the step ended before it had a row, or did not run |", "1 shown, 3 failed, 1 can't be shown"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page lacks %q:\n%s", want, &page)
		}
	}
}

func TestA90_AReadOfTheTestsOnThisMachineHasARowForThePackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := native(t.Context(), &bytes.Buffer{}, dir, []string{"github.com/windows-nodes/wmco/internal/version"}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(dir, testRows)); err != nil {
		t.Error(err)
	}
}

// All rows must be tested except the reboot, which would end the runner's job.
func TestA90_EveryRowIsTriedButTheReboot(t *testing.T) {
	t.Parallel()
	rows, err := rowsToTry()
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(rows, "A30") || !slices.Contains(rows, "A22") || !slices.Contains(rows, "H01") || len(rows) < 80 {
		t.Errorf("the rows to try are %v", rows)
	}
}

// write writes a file on a host.
func write(h host, path string) error {
	files := h.windows().Files
	if err := files.MkdirAll(path[:strings.LastIndexByte(path, '\\')], winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(files, path, strings.NewReader("x"), winos.AccessInherit)
}
