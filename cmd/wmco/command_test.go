package main

import (
	"bytes"
	"regexp"
	"testing"
)

func TestTheVersionIsPrintedAsScriptsReadIt(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	command := newCommand()
	command.SetOut(&out)
	command.SetArgs([]string{"version"})
	if err := command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := regexp.MustCompile(`^windows-machine-config-operator version: "[^"]+", go version: "go1[^"]*"\n$`)
	if !want.MatchString(out.String()) {
		t.Errorf("printed %q", out.String())
	}
}
