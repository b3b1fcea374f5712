package verbs_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// The other operator's cleanup leaves kubelet's directory, which every user may read. The join once refused such a
// host.
func TestA84_AHostThatAnotherOperatorCleanedJoinsWithKeysOfItsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	if err := r.PredecessorRemains(); err != nil {
		t.Fatal(err)
	}
	const theirs = `C:\Users\Public\theirs.txt`
	write(t, r, theirs, "theirs", winos.AccessInherit)
	if err := r.MakeJunction(contract.DirKubeletPKI+`\link`, `C:\Users\Public`); err != nil {
		t.Fatal(err)
	}
	before := r.Snapshot()
	if found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight,
		preflightRequest(r))); len(found.Problems) > 0 {
		t.Fatalf("preflight: %v", found.Problems)
	}
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), wanted())))
	for _, cleared := range []bool{true, false} { // the deletion is reported once
		answer := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest()))
		if answer.ClearedKeys != cleared {
			t.Errorf("bootstrap reports deleted keys: %t", answer.ClearedKeys)
		}
	}
	join(t, r)
	awaitReconciled(t, r)
	if info, err := r.Host().Files.Stat(contract.DirKubeletPKI); err != nil || info.Access != winos.AccessAdministrators {
		t.Errorf("the directory of kubelet's keys is %+v, %v", info, err)
	}
	for key := range r.Snapshot() {
		if strings.Contains(strings.ToLower(key), `\pki\kubelet.key`) || strings.Contains(key, `\pki\link`) {
			t.Errorf("%s is left", key)
		}
	}
	if got := read(t, r, theirs); got != "theirs" {
		t.Errorf("the file in the link's target is %q", got)
	}
	cleanUp(t, r)
	for _, line := range sim.Diff(before, r.Snapshot(), append(kept(r), contract.DirKubeletPKI)...) {
		t.Error(line)
	}
}

func TestA84_AHostThatAnotherOperatorDidNotCleanIsRefusedAndStaysAsItIs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		access winos.Access
		change func(t *testing.T, r *rig)
		names  []string
	}{
		"C:\\k is open":       {access: winos.AccessInherit, names: []string{contract.DirK + " "}},
		"C:\\k is restricted": {access: winos.AccessAdministrators, names: []string{contract.DirK + " "}},
		"C:\\k is gone": {access: winos.AccessAdministrators, change: func(t *testing.T, r *rig) {
			for _, e := range []string{"imported-certs.pem", "cni", "containerd", "tls", "etc", "wicd-certs", "kubeconfig",
				"wicd-kubeconfig"} {
				if err := r.Host().Files.RemoveAll(contract.DirK + `\` + e); err != nil {
					t.Fatal(err)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			if err := r.Predecessor(t.Context(), c.access); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				c.change(t, r)
			}
			services := []string{contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceDaemon}
			before, pids := r.Snapshot(), map[string]uint32{}
			for _, name := range services {
				pids[name] = service(t, r, name).PID
			}
			found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
			for _, named := range append(c.names, "service kubelet", "service "+contract.ServiceDaemon) {
				if !slices.ContainsFunc(found.Problems, func(p contract.Problem) bool {
					return p.Reason == contract.ReasonConflictingSoftware && strings.HasPrefix(p.Detail, named)
				}) {
					t.Errorf("preflight does not name %s: %v", named, found.Problems)
				}
			}
			if found.Joined || found.Running {
				t.Error("preflight takes the host for one of our nodes")
			}
			if c.names != nil { // the verbs after preflight refuse the host as well
				if p := call[contract.ReceiveAnswer](t, r, contract.VerbReceive,
					send(t, r.Host().Files, r.Home(), wanted())).Problem; p == nil || p.Reason != contract.ReasonConflictingSoftware {
					t.Errorf("receive: %v", p)
				}
				if p := call[contract.PrepareAnswer](t, r, contract.VerbPrepare,
					contract.PrepareRequest{Hostname: "win-b"}).Problem; p == nil || p.Reason != contract.ReasonConflictingSoftware {
					t.Errorf("prepare: %v", p)
				}
			}
			// A user then removes the refused host from the list of hosts. So the calls must not have changed the host.
			facts, err := r.Host().System.Facts(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			answer := must(t, call[contract.CleanupAnswer](t, r, contract.VerbCleanup,
				contract.CleanupRequest{MachineID: facts.MachineID}))
			if len(answer.Removed)+len(answer.Left)+len(answer.Kept) > 0 {
				t.Errorf("cleanup: %+v", answer)
			}
			for _, line := range sim.Diff(before, r.Snapshot(), r.Home()) {
				t.Error(line)
			}
			for _, name := range services {
				if s := service(t, r, name); s.State != winos.ServiceRunning || s.PID != pids[name] {
					t.Errorf("service %s is %s in process %d", name, s.State, s.PID)
				}
			}
		})
	}
}

// A cleanup must recognize a node of this operator even if its state file, or all of C:\k, is missing.
func TestANodeOfOursIsCleanedAlthoughNothingInCkSaysSo(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	stop(t, r, contract.ServiceDaemon) // otherwise the daemon would write its state file again
	for _, path := range []string{contract.PathState, contract.DirStore} {
		if err := r.Host().Files.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	cleanUpFor(t, r, contract.CleanupRequest{NodeName: "win-a"})
	for key := range r.Snapshot() {
		if strings.HasPrefix(key, "service ") || strings.HasPrefix(key, "network ") {
			t.Errorf("%s is left", key)
		}
	}
}
