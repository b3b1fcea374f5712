package house_test

import (
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
