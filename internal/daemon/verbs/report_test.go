package verbs_test

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestA75_TheVerbPrintsTheReportAndChangesNothing(t *testing.T) {
	t.Parallel()
	m, err := sim.New(sim.Options{Hostname: "WIN-A"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	before := m.Snapshot()
	var out bytes.Buffer
	root := verbs.New(verbs.Options{Host: m.Host(), Version: "1.2.3", Stdin: strings.NewReader(""), Stdout: &out,
		Stderr: io.Discard})
	root.SetArgs([]string{"report"})
	if err = root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var found contract.NodeReport
	if err = json.Unmarshal(out.Bytes(), &found); err != nil || found.Version != "1.2.3" || len(found.Routes) == 0 {
		t.Errorf("%v\n%s", err, out.String())
	}
	if left := sim.Diff(before, m.Snapshot()); len(left) > 0 {
		t.Errorf("the verb changed %v", left)
	}
}
