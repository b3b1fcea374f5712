package verbs_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim"
)

// attempt runs a verb that may be killed. It reports whether the verb returned an answer.
func attempt(t *testing.T, r *rig, verb contract.Verb, request any) bool {
	t.Helper()
	content, err := json.Marshal(request)
	if err != nil {
		t.Fatal(err)
	}
	line := contract.RPCDir + `\` + contract.UploadedName(r.digest) + " " + string(verb)
	return r.Exec(t.Context(), sim.ExecRequest{CommandLine: line, Stdin: bytes.NewReader(content)}) == 0
}

// lasting returns the paths whose content is different after each join: keys, process IDs, logs, the RPC directory, and
// the counters, which the daemon writes soon after it has started.
func lasting(r *rig) []string {
	return []string{
		r.Home(), contract.PathState, contract.DirDaemonCerts, contract.PathDaemonKubeconfig, contract.DirKubeletPKI,
		contract.PathBootstrapKubeconfig,
		contract.DirLog + `\wicd`, contract.DirLog + `\kubelet`, contract.PathMetrics, contract.PathMetrics + ".tmp",
	}
}

// written returns a snapshot of the machine at a moment when its running daemon is not writing the state file.
func written(t *testing.T, r *rig) (snapshot sim.Snapshot) {
	t.Helper()
	eventually(t, "the state to be written", func() bool {
		snapshot = r.Snapshot()
		for key := range snapshot {
			if strings.EqualFold(key, "file "+contract.PathState+".tmp") {
				return false
			}
		}
		return true
	})
	return snapshot
}

// calls counts the calls to the operating system that walk makes.
func calls(t *testing.T, prepare, walk func(t *testing.T, r *rig)) int64 {
	t.Helper()
	r := newRig(t, sim.Options{})
	prepare(t, r)
	r.life.Store(&mortal{})
	walk(t, r)
	return r.life.Load().calls.Load()
}

// atEveryCall runs walk many times. At each call to the operating system, it kills walk once before and once after the
// call takes effect.
func atEveryCall(t *testing.T, prepare, walk, check func(t *testing.T, r *rig)) {
	t.Helper()
	total := calls(t, prepare, walk)
	if total < 20 {
		t.Fatalf("only %d calls were counted", total)
	}
	t.Logf("%d calls", total)
	for _, late := range []bool{false, true} {
		for at := int64(1); at <= total; at++ {
			t.Run(fmt.Sprintf("call %d, late %v", at, late), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, sim.Options{})
				prepare(t, r)
				r.life.Store(&mortal{at: at, late: late})
				walk(t, r)
				r.life.Store(nil)
				check(t, r)
			})
		}
	}
}

func TestA11_AJoinThatDiesAnywhereIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	reference := newRig(t, sim.Options{})
	join(t, reference)
	want := written(t, reference)
	walk := func(t *testing.T, r *rig) {
		found := contract.PreflightAnswer{Missing: wanted()}
		csr := []byte(nil)
		for _, step := range []func() bool{
			func() bool { return attempt(t, r, contract.VerbPreflight, preflightRequest(r)) },
			func() bool {
				return attempt(t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing))
			},
			func() bool { return attempt(t, r, contract.VerbBootstrap, bootstrapRequest()) },
			func() bool {
				// This call returns the same certificate request as the previous call.
				request := bootstrapRequest()
				request.BootstrapKubeconfig = nil
				life := r.life.Swap(nil)
				csr = must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request)).DaemonCSR
				r.life.Store(life)
				return attempt(t, r, contract.VerbHandover, r.handoverRequest(t, csr))
			},
		} {
			if !step() {
				return
			}
		}
	}
	atEveryCall(t, func(*testing.T, *rig) {}, walk, func(t *testing.T, r *rig) {
		join(t, r)
		for _, line := range sim.Diff(want, written(t, r), lasting(r)...) {
			t.Error(line)
		}
		if n := r.kubelets.Load(); n != 1 {
			t.Errorf("kubelet was started %d times", n)
		}
		cleanUp(t, r)
		for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
			t.Error("after cleanup:", line)
		}
	})
}

func TestA32_ACleanupThatDiesAnywhereIsFinishedByTheNext(t *testing.T) {
	t.Parallel()
	walk := func(t *testing.T, r *rig) { attempt(t, r, contract.VerbCleanup, contract.CleanupRequest{}) }
	atEveryCall(t, join, walk, func(t *testing.T, r *rig) {
		cleanUp(t, r)
		for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
			t.Error(line)
		}
	})
}
