package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsUseTheTermsOfTheField finds words of an earlier dialect, which made readers stop.
// The right column is what to write.
func TestDocumentsUseTheTermsOfTheField(t *testing.T) {
	t.Parallel()
	terms := map[string]string{
		`ledger`:                                "state file",
		`herald|lookout`:                        "events, watch",
		`\b(the |a )guard\b`:                    "rollback watchdog",
		`walk(s|ed)? (into|in again|the way)`:   "the operator joins the host again over SSH",
		`on (its|their) way (in|out|to)\b`:      "joins, leaves, is upgraded",
		`(by|without|of) [a-z']+'s (own )?word`: "reports, status",
		`given back as it was`:                  "what is removed and what stays",
		`taken back`:                            "downgraded, reverted",
		`asks for nothing`:                      "unresponsive",
		`spec\.rollout\.windows`:                "spec.rollout.maintenanceWindows",
		`\bdisturb(s|ed|ing)?\b`:                "disrupt",
		`\b(becomes?|not) well\b`:               "Ready, healthy",
		`\blets? (us|the operator|the key) in`:  "accepts the key",
		`\btends?\b|\bthe (tender|keeper)\b`:    "reconcile, apply",
		`\bdepot\b`:                             "payload server",
	}
	for pattern, instead := range terms {
		word := regexp.MustCompile(`(?i)` + pattern)
		for page, content := range documents(t) {
			if !strings.HasPrefix(page, "docs/") && strings.Contains(page, "/") {
				continue // notes beside the code that they are about
			}
			for line := range strings.Lines(span.ReplaceAllString(content, "")) {
				if found := word.FindString(line); found != "" {
					t.Errorf("%s says %q; write: %s\n\t%.160s", page, found, instead, line)
				}
			}
		}
	}
}

// TestGoUsesTheTermsOfTheField finds some of them in comments and messages of the code.
func TestGoUsesTheTermsOfTheField(t *testing.T) {
	t.Parallel()
	terms := []struct {
		part    string // of every match, as it is found quickly
		word    *regexp.Regexp
		instead string
	}{
		{"walk", regexp.MustCompile(`walk(s|ed|ing)? (into|in again|the way)`),
			"the operator joins the host again over SSH"},
		{" way in", regexp.MustCompile(`\bo[nf] (its|their) way in\b`), "joins"},
		{"let", regexp.MustCompile(`\ble(t|ts|tting) (us|the operator|a key|the (\w+ )?key) in\b`), "accepts the key"},
		{"let go ahead", regexp.MustCompile(`let go ahead`), "granted a place"},
		{"disturb", regexp.MustCompile(`(?i)disturb`), "disrupt"},
		{" wing", regexp.MustCompile(`(both|operator's|daemon's) wings?\b`), "the operator, the daemon"},
		{"the lifecycle", regexp.MustCompile(`the lifecycle('s|;| uses| and)`), "the journeys of internal/instance"},
	}
	command := exec.CommandContext(t.Context(), "git", "ls-files", "*.go")
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(output)) {
		source, err := os.ReadFile(filepath.Join(root(t), name))
		if os.IsNotExist(err) || name == "internal/house/word_test.go" {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, term := range terms {
			if !strings.Contains(string(source), term.part) {
				continue
			}
			for _, found := range term.word.FindAllString(string(source), -1) {
				t.Errorf("%s says %q; write: %s", name, found, term.instead)
			}
		}
	}
}
