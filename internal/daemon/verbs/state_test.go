package verbs_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// A power cut can leave a file of zeros.
func TestADaemonWhoseStateFileIsLostTakesTheNodesNameFromItsCertificate(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"zeros": strings.Repeat("\x00", 4096), "empty": "", "half": `{"nodeName"`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			join(t, r)
			awaitReconciled(t, r)
			stop(t, r, contract.ServiceDaemon)
			write(t, r, contract.PathState, content, winos.AccessAdministrators)
			kubelet := service(t, r, "kubelet").PID
			if err := r.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
				t.Fatal(err)
			}
			eventually(t, "rebuilding the state file", func() bool {
				found, err := state.Read(r.Host().Files)
				return err == nil && found.NodeName == "win-a"
			})
			if s := service(t, r, contract.ServiceDaemon); s.State != winos.ServiceRunning {
				t.Errorf("the daemon is %s", s.State)
			}
			if s := service(t, r, "kubelet"); s.PID != kubelet {
				t.Error("kubelet was restarted")
			}
		})
	}
}

// kubelet and flanneld would restart with the address of the default route, and pods would appear to be on another
// node.
func TestANodeWhoseStateFileIsLostKeepsTheAddressThatItsInstanceNames(t *testing.T) {
	t.Parallel()
	const named = "127.0.0.1"
	for name, noRoute := range map[string]bool{"with a default route": false, "without one for now": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Address: netip.MustParseAddr("127.32.99.1")})
			join(t, r)
			awaitReconciled(t, r)
			request := bootstrapRequest()
			request.NodeIP = named
			must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request))
			write(t, r, contract.PathState, "", winos.AccessAdministrators)
			r.SetNoRoute(noRoute)
			if err := r.Host().Services.Start(t.Context(), contract.ServiceDaemon); err != nil {
				t.Fatal(err)
			}
			eventually(t, "rebuilding the state file", func() bool {
				found, err := state.Read(r.Host().Files)
				return err == nil && found.NodeName == "win-a"
			})
			stop(t, r, contract.ServiceDaemon)
			r.SetNoRoute(false)
			found, err := state.Read(r.Host().Files)
			if err != nil {
				t.Fatal(err)
			}
			// The revision is read again.
			found.Revision = state.Revision{Name: request.Revision, Manifest: request.Manifest}
			apply.New(apply.Options{Host: r.Host(), State: found}).Apply(t.Context(),
				apply.Request{Scope: plan.Bootstrap})
			if got := service(t, r, "kubelet").Command; !strings.HasSuffix(got, " --node-ip="+named) {
				t.Errorf("kubelet is %q", got)
			}
		})
	}
}
