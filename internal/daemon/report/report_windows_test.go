package report_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/report"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// This test reads the real machine and doesn't change it.
func TestTheReportOfThisMachine(t *testing.T) {
	t.Parallel()
	text, err := report.Encode(report.Look(t.Context(), winos.New(), "1"))
	if err != nil || len(text) > contract.MaxReport {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	var found contract.NodeReport
	if err = json.Unmarshal(text, &found); err != nil {
		t.Fatal(err)
	}
	for _, what := range found.Unread {
		// The machine may have no host network service, and has no state file, because it is not a node.
		if !strings.HasPrefix(what, "network ") && !strings.HasPrefix(what, "state file: ") {
			t.Error(what)
		}
	}
	if len(found.Addresses) == 0 || len(found.Routes) == 0 || len(found.Services) == 0 {
		t.Errorf("the report lacks something:\n%s", text)
	}
}
