package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
)

// testRows is the file with the rows of the command "test".
const testRows = "test-rows.json"

// nativePackages lists the packages with tests for Windows: the suite of winostest, and the daemon's own tests.
func nativePackages() []string {
	return []string{"./internal/daemon/...", "./cmd/wicd", "./cmd/servicewrapper"}
}

// module is the prefix of each package's path.
const module = "github.com/windows-nodes/wmco/"

// event is a line of go test -json.
type event struct{ Action, Package, Test, Output string }

// The function native runs Go tests on this machine. It adds a row for each package and for each failed test.
func native(ctx context.Context, out io.Writer, results string, packages []string) error {
	t := &table{path: filepath.Join(results, testRows), out: out}
	c := exec.CommandContext(ctx, "go", append([]string{"test", "-vet=off", "-count=1", "-json", "-timeout=30m"},
		packages...)...)
	var text, errs bytes.Buffer
	c.Stdout, c.Stderr = &text, &errs
	c.Cancel = func() error { return c.Process.Kill() }
	ended := c.Run()
	if err := keep(results, "test.json", text.Bytes()); err != nil {
		return err
	}
	t.addTests(&text)
	if ended != nil && t.err() == nil {
		t.add(row{"tests on this machine", failed, fmt.Sprintf("%v: %s", ended, errs.String())})
	}
	return t.err()
}

// addTests adds a row for each package and for each failed test, with the output.
func (t *table) addTests(text io.Reader) {
	printed := map[string]string{}
	for decoder := json.NewDecoder(text); ; {
		e := event{}
		if decoder.Decode(&e) != nil {
			return
		}
		name := strings.TrimPrefix(e.Package, module)
		if e.Test != "" {
			name += " " + e.Test
		}
		switch e.Action {
		case "output":
			const most = 2000
			printed[name] = tail(printed[name]+e.Output, most)
		case "fail":
			t.add(row{name, failed, printed[name]})
		case "pass":
			if e.Test == "" {
				t.add(row{name, shown, ""})
			}
		case "skip":
			t.add(row{name, unshown, printed[name]})
		}
	}
}

// tail returns the end of a text.
func tail(text string, most int) string { return text[max(0, len(text)-most):] }
