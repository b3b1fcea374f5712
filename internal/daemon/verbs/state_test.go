package verbs_test

import (
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// A power cut can leave a state file that has only zeros.
func TestADaemonWhoseStateFileIsLostChangesNothingUntilItsHostJoinsAgain(t *testing.T) {
	t.Parallel()
	for name, content := range map[string]string{
		"zeros": strings.Repeat("\x00", 4096), "empty": "", "half": `{"nodeName"`, "deleted": "-",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			join(t, r)
			awaitReconciled(t, r)
			stop(t, r, contract.ServiceDaemon)
			write(t, r, contract.PathState, content, winos.AccessAdministrators)
			if content == "-" {
				if err := r.Host().Files.Remove(contract.PathState); err != nil {
					t.Fatal(err)
				}
			}
			before := r.Snapshot()
			// The service may end so soon that Start returns an error.
			_ = r.Host().Services.Start(t.Context(), contract.ServiceDaemon)
			eventually(t, "the end of the daemon", func() bool {
				log, err := winos.ReadFile(r.Host().Files, contract.PathDaemonLog)
				return err == nil && strings.Contains(string(log), string(contract.ReasonStateLost))
			})
			stop(t, r, contract.ServiceDaemon)
			for _, line := range sim.Diff(before, r.Snapshot(), contract.DirDaemonLog) {
				t.Error(line)
			}
			r.upload(t)
			join(t, r)
			if s := service(t, r, contract.ServiceDaemon); s.State != winos.ServiceRunning {
				t.Errorf("the daemon is %s", s.State)
			}
			found, err := state.Read(r.Host().Files)
			if err != nil || found.NodeName != "win-a" || found.Revision.Name == "" {
				t.Errorf("the state file has node %q and revision %q, %v", found.NodeName, found.Revision.Name, err)
			}
		})
	}
}

func TestADaemonWhoseStateFileIsLostReportsItAndNoRevision(t *testing.T) {
	t.Parallel()
	w := joinedWorld(t)
	stop(t, w.rig, contract.ServiceDaemon)
	if err := w.Host().Files.Remove(contract.PathState); err != nil {
		t.Fatal(err)
	}
	_ = w.Host().Services.Start(t.Context(), contract.ServiceDaemon)
	eventually(t, "the report", func() bool {
		a := w.node(t).Annotations
		_, reported := a[contract.RevisionAnnotation]
		return !reported && strings.HasPrefix(a[contract.ApplyStatusAnnotation], string(contract.ReasonStateLost)+": ")
	})
}
