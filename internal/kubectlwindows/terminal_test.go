package kubectlwindows_test

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/windows-nodes/wmco/internal/kubectlwindows"
)

// hostileLog prints a log in which a host wrote control characters. On a terminal they must be replaced. In a file they
// must remain.
func hostileLog(t *testing.T, at *terminal) {
	t.Helper()
	const written = "\x1b]0;owned\a\x1b[2Jlog of the daemon"
	logs := t.TempDir()
	if err := os.Mkdir(filepath.Join(logs, "kubelet"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(logs, "kubelet", "kubelet.log"), []byte(written), 0o600); err != nil {
		t.Fatal(err)
	}
	front := at.behind(t, &front{logs: logs})
	args := []string{"logs", "win-1", "--service", "kubelet"}
	if out := front.expect(t, 0, nil, args...); out != written {
		t.Errorf("the file has %q", out)
	}
	screen, terminal := openTerminal(t)
	code := kubectlwindows.Run(t.Context(), append([]string{"kubectl-windows", "--kubeconfig", front.kubeconfig}, args...),
		genericiooptions.IOStreams{In: strings.NewReader(""), Out: terminal, ErrOut: terminal})
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	shown, _ := io.ReadAll(screen) // returns an error because the terminal is closed
	if code != 0 || !strings.Contains(string(shown), "log of the daemon") || strings.ContainsAny(string(shown), "\x1b\a") {
		t.Errorf("%d: the terminal shows %q", code, shown)
	}
}
