package kubectlwindows_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// reported returns a folder of logs with the report of a node's daemon. text is the content of the report.
func reported(t *testing.T, text string) string {
	t.Helper()
	logs := t.TempDir()
	file := filepath.Join(logs, "wicd", "report.json")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return logs
}

// reports checks that the command why shows the report of a node's daemon.
func reports(t *testing.T, at *terminal) {
	t.Helper()
	hostile := "\x1b]0;owned\a\x1b[2J\u202e\nHOST forged"
	r := contract.NodeReport{Time: time.Now(), Version: "1.2.3" + hostile, Node: "win-1",
		State: contract.ReportedState{Revision: "rev-1", Failed: "rev-2" + hostile, Why: "it ended" + hostile},
		Services: []contract.ReportedService{{Name: "kubelet", State: "Running"},
			{Name: "kube-proxy" + hostile, State: "Stopped"}},
		Networks: []contract.ReportedNetwork{{Name: "overlay", Absent: true}},
		Reconciled: &contract.Reconciled{Phase: "Steady", Problems: []string{"ServiceFailed: it ended" + hostile},
			Differences: []contract.Difference{{Step: "StartService", Name: "kube-proxy" + hostile, Why: "must run"}}}}
	for range 5000 {
		r.Services = append(r.Services, contract.ReportedService{Name: "x", State: "Stopped"})
	}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	shown := []string{"1.2.3", "not verified, Steady, rev-1", "rev-2", "service kube-proxy", "no network overlay", "StartService",
		"and 4991 more", "kubelet run"}
	out := at.behind(t, &front{logs: reported(t, string(text))}).expect(t, 2, shown, "why", "node/win-1")
	if strings.ContainsAny(out, "\x1b\a\u202e") || strings.Contains(out, "\nHOST forged") {
		t.Errorf("the output has control characters for terminals: %q", out)
	}
	if lines := strings.Count(out, "\n"); lines > 80 {
		t.Errorf("%d lines", lines)
	}
	for name, c := range map[string]struct{ text, want string }{
		"that never ends":        {strings.Repeat(" ", contract.MaxReport+1) + "{}", "the answer is not a report"},
		"that is something else": {"\x1b]0;owned\a", "the answer is not a report"},
	} {
		t.Run(name, func(t *testing.T) {
			out := at.behind(t, &front{logs: reported(t, c.text)}).expect(t, 0, []string{c.want, "host 10.0.0.1"},
				"why", "node/win-1")
			if strings.ContainsAny(out, "\x1b\a") {
				t.Errorf("the output has control characters for terminals: %q", out)
			}
		})
	}
	none := at.behind(t, &front{logs: t.TempDir()}).expect(t, 0, nil, "why", "node/win-1")
	if strings.Contains(none, "report") {
		t.Errorf("without a report of an older daemon:\n%s", none)
	}
	// If a node never answers, the command prints everything except the node's report. It takes no longer than the time
	// limit of a request.
	slow := at.behind(t, &front{logs: t.TempDir(), onLog: func(r *http.Request) { <-r.Context().Done() }})
	slow.expect(t, 0, []string{"host 10.0.0.1", "not read: reading log /wicd/report.json of node win-1"}, "why", "node/win-1",
		"--request-timeout=300ms")
}
