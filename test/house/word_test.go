package house_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestDocumentsUseTheTermsOfTheField finds words that aren't the usual terms, because they confuse readers. The right
// column is the term to use.
func TestDocumentsUseTheTermsOfTheField(t *testing.T) {
	t.Parallel()
	terms := map[string]string{
		`ledger`:                                   "state file",
		`herald|lookout`:                           "events, watch",
		`\b(the |a )guard\b`:                       "trial of a new daemon",
		`walk(s|ed)? (into|in again|the way)`:      "the operator joins the host again over SSH",
		`on (its|their) way (in|out|to)\b`:         "joins, leaves, is upgraded",
		`(by|without|of) [a-z']+'s (own )?word`:    "reports, status",
		`given back as it was`:                     "what is removed and what stays",
		`taken back`:                               "downgraded, reverted",
		`asks for nothing`:                         "unresponsive",
		`spec\.rollout\.windows`:                   "spec.rollout.maintenanceWindows",
		`\bdisturb(s|ed|ing)?\b`:                   "disrupt",
		`\b(becomes?|not) well\b`:                  "Ready, healthy",
		`\blets? (us|the operator|the key) in`:     "accepts the key",
		`\btends?\b|\bthe (tender|keeper)\b`:       "reconcile, apply",
		`exchange director|\bdaemon\b.* exchanged`: "RPC directory; replaced",
		`\bdepot\b`:                                "payload server",
		`\b(an?|the|no) authority|\bauthorities`:   "CA, trust bundle",
	}
	for pattern, instead := range terms {
		word := regexp.MustCompile(`(?i)` + pattern)
		for page, content := range documents(t) {
			if !strings.HasPrefix(page, "docs/") && strings.Contains(page, "/") {
				continue // notes in the folder of their code
			}
			for line := range strings.Lines(span.ReplaceAllString(content, "")) {
				if found := word.FindString(line); found != "" {
					t.Errorf("%s says %q; write: %s\n\t%.160s", page, found, instead, line)
				}
			}
		}
	}
}

// TestGoUsesTheTermsOfTheField finds some of these words in comments and messages.
func TestGoUsesTheTermsOfTheField(t *testing.T) {
	t.Parallel()
	terms := []struct {
		part    string // a part of every match, for a fast search
		word    *regexp.Regexp
		instead string
		but     *regexp.Regexp // the word in another sense, or nil
	}{
		{"walk", regexp.MustCompile(`walk(s|ed|ing)? (into|in again|the way)`),
			"the operator joins the host again over SSH", nil},
		{" way in", regexp.MustCompile(`\bo[nf] (its|their) way in\b`), "joins", nil},
		{"let", regexp.MustCompile(`\ble(t|ts|tting) (us|the operator|a key|the (\w+ )?key) in\b`), "accepts the key", nil},
		{"let go ahead", regexp.MustCompile(`let go ahead`), "granted a slot", nil},
		{"disturb", regexp.MustCompile(`(?i)disturb`), "disrupt", nil},
		{" wing", regexp.MustCompile(`(both|operator's|daemon's) wings?\b`), "the operator, the daemon", nil},
		{"the lifecycle", regexp.MustCompile(`the lifecycle('s|;| uses| and)`), "the journeys of internal/instance", nil},
		{"uthorit", regexp.MustCompile(`(?i)authorit(y|ies)`), "CA, trust bundle", regexp.MustCompile(
			`(?i)(certificate|cert-|unknown|machine)[- ]?authority|containerd\\authorities|authority(\(| is host)`)},
		{"xchang", regexp.MustCompile(`(?i)exchang`), "rpc; replace, self-update; token exchange", regexp.MustCompile(
			`(?i)key exchange|transport\.Exchange|exchanged for an access token`)},
		{"version", regexp.MustCompile(`"(the program of |payload of )?version %s: |\b(unused|forged) version\b|` +
			`windows-services-<version>`), "revision: a version is a release", nil},
		{"edger", regexp.MustCompile(`(?i)ledger`), "state file", nil},
		{"crossed off", regexp.MustCompile(`crossed off`), "removed from the state file", nil},
		{"tend", regexp.MustCompile(`\btend(ed|ing)\b`), "reconcile", nil},
		{"iar", regexp.MustCompile(`\bliars?\b`), "corrupt, source health", nil},
		{"nheard", regexp.MustCompile(`(?i)(is|func )unheard\b`), "unresponsive", nil},
		{"book", regexp.MustCompile(`\*book\b|\bthe book\b|\bnewBook\b`), "records, log", nil},
		{"'s word", regexp.MustCompile(`\b(user|daemon|kubelet|host|operator|somebody)'s (own )?word\b`), "status, what is set", nil},
		{"guard", regexp.MustCompile(`wicd-guard|config-guard|"guard"|\bthe guard\b`), "trial of a new daemon", nil},
		{"estless", regexp.MustCompile(`(?i)restless`), "crash-looping", nil},
		{"itness", regexp.MustCompile(`(?i)\bwitness(es)?\b`), "what it observes or reports", nil},
		{"ilent", regexp.MustCompile(`(?i)\bsilent ?(daemon|kubelet|node)|kubelet is silent`), "unresponsive", nil},
		{" target", regexp.MustCompile(`\b(the|its|last pass's) target (lacks|names|and the state)`), "desired state", nil},
		{"ro", regexp.MustCompile(`\bStepProving\b|[pP]roofTimeout|"Proving"`), "Verifying, verifyTimeout", nil},
		{" care", regexp.MustCompile(`\bcare\(|\bcare decides`), "needs, health", nil},
	}
	command := exec.CommandContext(t.Context(), "git", "ls-files", "*.go")
	command.Dir = root(t)
	output, err := command.Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(output)) {
		source, err := os.ReadFile(filepath.Join(root(t), name))
		if os.IsNotExist(err) || name == "test/house/word_test.go" {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, term := range terms {
			if !strings.Contains(string(source), term.part) {
				continue
			}
			text := string(source)
			if term.but != nil {
				text = term.but.ReplaceAllString(text, "")
			}
			for _, found := range term.word.FindAllString(text, -1) {
				t.Errorf("%s says %q; write: %s", name, found, term.instead)
			}
		}
	}
}
