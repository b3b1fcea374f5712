package verbs_test

import (
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
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
