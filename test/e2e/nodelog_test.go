package e2e_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
)

// reachable starts a scene with one host that has an address of this computer. The API server and Endpoints need such
// an address.
func reachable(t *testing.T) (*stage, *fleet.Host) {
	t.Helper()
	lease, err := fleet.TakeOwn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { must(t, lease.Release()) })
	o := options(1)
	o.Hosts.Edit = func(_ int, h *sim.Options) { h.Address = lease.Address }
	o.Metrics = true
	o.Arguments = []string{"--metrics-bind-address", lease.Address.String() + ":" + operatorMetricsPort}
	s := own(t, o)
	h := s.hosts(t, 1)[0]
	s.join(t, h)
	return s, h
}

// operatorMetricsPort differs from the exporter's port, because both have the same address in this test.
const operatorMetricsPort = "9443"

// A user reads logs of a node with kubectl. The request goes through the real API server to the stand-in of kubelet.
// The stand-in uses the configuration that the daemon wrote and the certificate that the operator approved, and it
// authorizes requests as the API server decides.
func TestA38_LogsOfANodeAreReadThroughTheAPIServer(t *testing.T) {
	t.Parallel()
	s, h := reachable(t)
	logs := logsOf(t, h)
	for name, path := range map[string]string{
		contract.ServiceKubelet: `kubelet\kubelet.log`, contract.ServiceKubeProxy: `kube-proxy\kube-proxy.log`,
		contract.ServiceHybridOverlay: `hybrid-overlay\hybrid-overlay.log`,
		contract.ServiceContainerd:    `containerd\containerd.log`,
		contract.ServiceCSIProxy:      `csi-proxy\csi-proxy.log`,
		contract.ServiceExporter:      `windows_exporter\windows_exporter.log`,
		contract.ServiceDaemon:        `wicd\windows-instance-config-daemon.exe.INFO`,
	} {
		if logs[name] != contract.DirLog+`\`+path {
			t.Errorf("the log of %s is %q", name, logs[name])
		}
		s.await(t, "the log of "+name, func(ctx context.Context) (bool, string, error) {
			got := s.shell(ctx, t, "kubectl get --raw '/api/v1/nodes/"+h.Name+"/proxy/logs/"+
				strings.ReplaceAll(path, `\`, "/")+"'")
			now, err := winos.ReadFile(h.Machine.Host().Files, contract.DirLog+`\`+path)
			return len(got) > 0 && bytes.HasPrefix(now, got), string(got), err
		})
	}
	whole := s.shell(t.Context(), t, "kubectl get --raw '/api/v1/nodes/"+h.Name+"/proxy/logs/?query=kubelet'")
	if !bytes.Contains(whole, []byte("successfully registered node")) {
		t.Errorf("the answer to the log query is %q", whole)
	}
	for _, page := range []string{"nodes.md", "mirrors.md", "alerts.md", "troubleshooting.md"} {
		for _, command := range logCommands(t, page) {
			if answer := s.shell(t.Context(), t, strings.ReplaceAll(command, "<node>", h.Name)); len(answer) == 0 {
				t.Errorf("the command on %s has no output: %s", page, command)
			}
		}
	}
	s.lists(t, "A38")
}

// logCommands returns the commands on a page that read logs of a node.
func logCommands(t *testing.T, page string) (commands []string) {
	t.Helper()
	root, err := cluster.ModuleRoot()
	must(t, err)
	content, err := os.ReadFile(filepath.Join(root, "docs", page))
	must(t, err)
	for line := range strings.Lines(string(content)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "kubectl get --raw") && strings.Contains(line, "/proxy/logs/") {
			commands = append(commands, line)
		}
	}
	return slices.Clip(commands)
}

// shell runs a command line as an administrator of the cluster, and returns its output.
func (s *stage) shell(ctx context.Context, t *testing.T, line string) []byte {
	t.Helper()
	c := exec.CommandContext(ctx, "sh", "-c", line)
	c.Env = append(os.Environ(), "KUBECONFIG="+s.Cluster.Kubeconfig,
		"PATH="+filepath.Dir(s.Cluster.Binaries.Kubectl)+string(os.PathListSeparator)+os.Getenv("PATH"))
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	if err := c.Run(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, problems.String())
	}
	return out.Bytes()
}
