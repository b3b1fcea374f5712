package main

import (
	"bytes"
	"regexp"
	"strings"
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

func TestA66_EachFlagHasAVariableWhichTheFlagOverrides(t *testing.T) {
	t.Parallel()
	environment := map[string]string{"WMCO_PAYLOAD_DIR": "/elsewhere", "WMCO_OLM": "true", "WMCO_DAEMON_TIMEOUT": "7m",
		"WMCO_MACHINE_REFUSAL_TIMEOUT": "9m", "WMCO_DEBUGLOGGING": "",
		"WMCO_VERSION": "0.1.0"}
	flags := newCommand().Flags()
	if err := flags.Parse([]string{"--machine-refusal-timeout", "1m"}); err != nil {
		t.Fatal(err)
	}
	lookup := func(name string) (string, bool) { value, ok := environment[name]; return value, ok }
	if err := fromEnvironment(flags, lookup); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{"payload-dir": "/elsewhere", "olm": "true", "daemon-timeout": "7m0s",
		"machine-refusal-timeout": "1m0s", "debugLogging": "false"} {
		if got := flags.Lookup(flag).Value.String(); got != want {
			t.Errorf("%s is %s, not %s", flag, got, want)
		}
	}
	environment["WMCO_DAEMON_TIMEOUT"] = "soon"
	if err := fromEnvironment(newCommand().Flags(), lookup); err == nil ||
		!strings.Contains(err.Error(), "WMCO_DAEMON_TIMEOUT") {
		t.Errorf("%v", err)
	}
}
