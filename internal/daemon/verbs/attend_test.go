package verbs_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// The operator reads the answer of a cleanup that it requested, so the cleanup must not end the service that sends this
// answer. A released host cleans itself, and nobody reads the answer.
func TestA86_ACleanupKeepsTheAttendanceAndThatOfAReleasedHostDoesNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	files, services := r.Host().Files, r.Host().Services
	rpc := r.Home() + `\` + contract.RPCDir + `\`
	attends := rpc + "wicd-0123456789abcdef.exe"
	kept := []string{attends, rpc + contract.HostStateFile, rpc + "attend.pem"}
	for _, path := range append(kept, rpc+"wicd-0000000000000000.exe") {
		if err := winos.WriteFile(files, path, strings.NewReader("MZ wicd"), winos.AccessInherit); err != nil {
			t.Fatal(err)
		}
	}
	if err := services.Apply(t.Context(), winos.ServiceConfig{Name: contract.ServiceAttend,
		Description: plan.Description(contract.ServiceAttend), Command: `"` + attends + `" attend-service`}); err != nil {
		t.Fatal(err)
	}
	where := verbs.Where{Home: r.Home(), Self: r.uploaded}
	for _, where.Released = range []bool{false, true} {
		answer, err := verbs.Cleanup(t.Context(), r.Host(), where)
		if err != nil || len(answer.Left) > 0 {
			t.Fatal(answer, err)
		}
		_, err = services.Get(t.Context(), contract.ServiceAttend)
		if errors.Is(err, winos.ErrNotFound) != where.Released {
			t.Errorf("released %t: the service: %v", where.Released, err)
		}
		for _, path := range kept {
			if there, err := winos.Exists(files, path); err != nil || there == where.Released {
				t.Errorf("released %t: %s is there: %t, %v", where.Released, path, there, err)
			}
		}
		if there, err := winos.Exists(files, rpc+"wicd-0000000000000000.exe"); err != nil || there == where.Released {
			t.Errorf("released %t: the other program exists: %t, %v", where.Released, there, err)
		}
	}
}
