package verbs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// kept returns the paths that remain after a cleanup: the logs, as documented, and the RPC directory, which the
// operator removes.
func kept(r *rig) []string { return []string{contract.DirLog, r.Home()} }

// cleanUp cleans the host, and fails the test if cleanup could not remove something.
func cleanUp(t *testing.T, r *rig) contract.CleanupAnswer {
	t.Helper()
	return cleanUpFor(t, r, contract.CleanupRequest{})
}

// cleanUpFor is like cleanUp, with a given request.
func cleanUpFor(t *testing.T, r *rig, request contract.CleanupRequest) contract.CleanupAnswer {
	t.Helper()
	if len(r.HNSNetworks()) > 0 { // the removal of the networks ends the SSH connection of the first call
		attempt(t, r, contract.VerbCleanup, request)
		// The cleanup continues without the connection.
		eventually(t, "the end of the cleanup", func() bool { return !hasProcess(r, string(contract.VerbCleanup)) })
	}
	answer := must(t, call[contract.CleanupAnswer](t, r, contract.VerbCleanup, request))
	for _, p := range answer.Left {
		t.Error("left:", p.Detail)
	}
	return answer
}

func TestA32_CleanupGivesTheHostBackAsItWas(t *testing.T) {
	t.Parallel()
	const before = "http://before:8080"
	for name, c := range map[string]struct {
		prepare func(t *testing.T, r *rig)
	}{
		"a fresh host": {func(*testing.T, *rig) {}},
		"a host that had the proxy set": {func(t *testing.T, r *rig) {
			set(t, r, "Http_Proxy", before)
			set(t, r, "NO_PROXY", ".corp")
		}},
		"a host with files in our directories": {func(t *testing.T, r *rig) {
			for _, path := range []string{contract.DirTemp + `\user.txt`, contract.DirLog + `\app\app.log`,
				`C:\var\lib\cni\networks\theirs\10.0.0.1`} {
				write(t, r, path, "theirs", winos.AccessInherit)
			}
		}},
		"a host with C:\\k that only Administrators may open": {func(t *testing.T, r *rig) {
			if err := r.Host().Files.MkdirAll(contract.DirK, winos.AccessAdministrators); err != nil {
				t.Fatal(err)
			}
			write(t, r, contract.DirK+`\tool.txt`, "theirs", winos.AccessAdministrators)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{Roots: [][]byte{[]byte("not a certificate at all")}})
			c.prepare(t, r)
			fresh := r.Snapshot()
			join(t, r)
			write(t, r, contract.DirLog+`\kubelet\old.log`, "a log line", winos.AccessInherit)
			cleanUp(t, r)
			after := r.Snapshot()
			for _, line := range sim.Diff(fresh, after, kept(r)...) {
				t.Error(line)
			}
			if !hasFile(after, `old.log`) {
				t.Error("the log is gone")
			}
			if again := cleanUp(t, r); len(again.Removed) > 0 {
				t.Errorf("a second cleanup removed %q", again.Removed)
			}
			r.upload(t)
			join(t, r) // the host can join again
		})
	}
}

func hasFile(s sim.Snapshot, name string) bool {
	for key := range s {
		if strings.HasPrefix(key, "file ") && strings.HasSuffix(strings.ToLower(key), name) {
			return true
		}
	}
	return false
}

// The network of an earlier revision still exists, because the daemon crashed or HNS was down. Cleanup must remove
// it.
func TestCleanupRemovesTheNetworksOfEarlierRevisions(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	// Stop the daemon first, because it also writes the state file.
	if err := r.Host().Services.Stop(t.Context(), contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	for name, subnet := range map[string]string{"flannel.4096": "10.244.3.0/24", "nat": "172.20.0.0/16"} {
		if _, err := r.CreateHNSNetwork(winos.HNSNetwork{Name: name, Subnet: netip.MustParsePrefix(subnet)}); err != nil {
			t.Fatal(err)
		}
	}
	stateFile, err := state.Read(r.Host().Files)
	if err != nil {
		t.Fatal(err)
	}
	stateFile.Networks.Add("flannel.4096")
	if err = stateFile.Save(); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r)
	if left := r.HNSNetworks(); len(left) != 1 || left[0].Name != "nat" {
		t.Errorf("the networks are %+v", left)
	}
}

func TestCleanupOfAHostThatNeverJoinedDoesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	if answer := cleanUp(t, r); len(answer.Removed) > 0 {
		t.Errorf("removed %q", answer.Removed)
	}
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), r.Home()) {
		t.Error(line)
	}
}

// Clones of a disk have the same SSH host key, so the operator may have dialled the wrong machine. A cleanup must not
// change that machine.
func TestAHostThatIsNotTheOneToBeRemovedStaysAsItIs(t *testing.T) {
	t.Parallel()
	machineID := func(r *rig) string {
		facts, err := r.Host().System.Facts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return facts.MachineID
	}
	lose := func(t *testing.T, r *rig) {
		if err := r.Host().Files.Remove(contract.PathState); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		isNode  bool
		change  func(t *testing.T, r *rig)
		request func(r *rig) contract.CleanupRequest
		refused bool
	}{
		"the host is another node": {isNode: true, refused: true,
			request: func(*rig) contract.CleanupRequest { return contract.CleanupRequest{NodeName: "win-b"} }},
		"the host is another node with a copy of the disk": {isNode: true, refused: true,
			request: func(r *rig) contract.CleanupRequest {
				return contract.CleanupRequest{NodeName: "win-b", MachineID: machineID(r)}
			}},
		"the host has another installation of Windows": {isNode: true, refused: true,
			request: func(*rig) contract.CleanupRequest {
				return contract.CleanupRequest{NodeName: "win-a", MachineID: "another"}
			}},
		"the host has another installation without a state file": {isNode: true, change: lose, refused: true,
			request: func(*rig) contract.CleanupRequest {
				return contract.CleanupRequest{NodeName: "win-a", MachineID: "another"}
			}},
		"the host has another installation and is no node": {
			request: func(*rig) contract.CleanupRequest {
				return contract.CleanupRequest{NodeName: "win-a", MachineID: "another"}
			}},
		"it is the one": {isNode: true,
			request: func(r *rig) contract.CleanupRequest {
				return contract.CleanupRequest{NodeName: "WIN-A", MachineID: strings.ToUpper(machineID(r))}
			}},
		"it is the one, by its name alone": {isNode: true,
			request: func(*rig) contract.CleanupRequest { return contract.CleanupRequest{NodeName: "win-a"} }},
		"it is the one by its installation, and its state file is lost": {isNode: true, change: lose,
			request: func(r *rig) contract.CleanupRequest {
				return contract.CleanupRequest{NodeName: "win-a", MachineID: machineID(r)}
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			if c.isNode {
				join(t, r)
			}
			if c.change != nil {
				stop(t, r, contract.ServiceDaemon) // otherwise the daemon would write its state file again
				c.change(t, r)
			}
			if !c.refused && c.isNode {
				cleanUpFor(t, r, c.request(r))
				_, err := r.Host().Services.Get(t.Context(), contract.ServiceKubelet)
				if !errors.Is(err, winos.ErrNotFound) {
					t.Errorf("kubelet is still there: %v", err)
				}
				return
			}
			before := r.Snapshot()
			answer := call[contract.CleanupAnswer](t, r, contract.VerbCleanup, c.request(r))
			problem := answer.Problem
			if c.refused && (problem == nil || problem.Reason != contract.ReasonHostDuplicate ||
				!strings.Contains(problem.Detail, `"win-`)) || !c.refused && problem != nil {
				t.Errorf("answered %v", problem)
			}
			after := r.Snapshot() // the daemon keeps running, and writes and removes its own files
			for key := range before {
				if _, there := after[key]; !there && !strings.Contains(strings.ToLower(key), `\bootstrap-kubeconfig`) {
					t.Errorf("%s is gone", key)
				}
			}
		})
	}
}

// unlisted is a service manager that refuses to list its services.
type unlisted struct{ winos.Services }

// List implements winos.Services.
func (unlisted) List(context.Context) ([]string, error) { return nil, winos.ErrDenied }

func TestAMachineThatMayBeAnothersIsNotCleanedWhileItsServicesAreUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	host := r.Host()
	host.Services = unlisted{host.Services}
	request, err := json.Marshal(contract.CleanupRequest{NodeName: "win-a", MachineID: "another"})
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	command := verbs.New(verbs.Options{Host: host, HomeDir: r.Home(), Self: r.uploaded,
		Stdin: bytes.NewReader(request), Stdout: &out, Stderr: io.Discard})
	command.SetArgs([]string{string(contract.VerbCleanup)})
	if err = command.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var answer contract.Answer[contract.CleanupAnswer]
	if err = json.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if p := answer.Problem; p == nil || p.Reason != contract.ReasonCleanupFailed ||
		!strings.Contains(p.Detail, "listing services") {
		t.Errorf("answered %s", out.String())
	}
}

func TestCleanupWithoutAStateFile(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]func(t *testing.T, r *rig){
		"lost": func(t *testing.T, r *rig) {
			if err := r.Host().Files.Remove(contract.PathState); err != nil {
				t.Fatal(err)
			}
		},
		"damaged": func(t *testing.T, r *rig) { write(t, r, contract.PathState, "{", winos.AccessAdministrators) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			join(t, r)
			stop(t, r, contract.ServiceDaemon) // otherwise the daemon would write its state file again
			c(t, r)
			write(t, r, contract.DirKubeletPKI+`\kubelet-client-current.pem`, "a key", winos.AccessAdministrators)
			cleanUp(t, r)
			after := r.Snapshot()
			for key := range after {
				if strings.HasPrefix(key, "service ") || strings.HasPrefix(key, "network ") ||
					strings.HasPrefix(strings.ToLower(key), `file c:\k`) || strings.Contains(strings.ToLower(key), "kubelet-client") {
					t.Errorf("%s is left", key)
				}
			}
		})
	}
}

// If the state file is lost, cleanup must still find the daemon's files. Once, cleanup reported success, but left the
// daemon's key.
func TestAHostWhoseStateFileWasLostIsCleanedByKnownNames(t *testing.T) {
	t.Parallel()
	const theirs = contract.DirK + `\my-script.ps1`
	data := []string{contract.DirKubelet, contract.DirContainerdData, state.DirCNIState, contract.DirTemp}
	for name, joinsAgain := range map[string]bool{"before another join": false, "after another join": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			join(t, r)
			awaitReconciled(t, r)
			write(t, r, contract.PathKubelet+".old-1", "MZ", winos.AccessAdministrators)
			stop(t, r, contract.ServiceDaemon)
			write(t, r, contract.PathState, strings.Repeat("\x00", 4096), winos.AccessAdministrators)
			var keeps []string
			if joinsAgain {
				r.upload(t)
				join(t, r)
				write(t, r, theirs, "theirs", winos.AccessInherit)
				keeps = []string{theirs}
			}
			if answer := cleanUp(t, r); !slices.Equal(answer.Kept, keeps) {
				t.Errorf("the answer names %q, want %q", answer.Kept, keeps)
			}
			for _, line := range sim.Diff(r.fresh, r.Snapshot(), slices.Concat(kept(r), data, keeps)...) {
				if !strings.HasPrefix(line, "+ environment HTTP_PROXY") {
					t.Error(line)
				}
			}
		})
	}
}

func TestCleanupLeavesServicesOfOthersAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	foreign := winos.ServiceConfig{Name: "csi-proxy", Description: "somebody else's", Command: `C:\tools\csi-proxy.exe`}
	write(t, r, `C:\tools\csi-proxy.exe`, "MZ", winos.AccessInherit)
	if err := r.Host().Services.Apply(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r)
	if s := service(t, r, "csi-proxy"); s.Description != foreign.Description {
		t.Errorf("the foreign service is now %+v", s)
	}
}

func TestCleanupSaysWhatIsLeftAndFinishesLater(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	r.SetPathFault(contract.PathContainerdShim, winos.ErrInUse)
	write(t, r, contract.DirContainerd+`\busy.txt`, "x", winos.AccessInherit)
	r.SetPathFault(contract.DirContainerd+`\busy.txt`, winos.ErrInUse)
	answer := must(t, call[contract.CleanupAnswer](t, r, contract.VerbCleanup, contract.CleanupRequest{}))
	if len(answer.Left) == 0 || !answer.RebootAdvised || !strings.Contains(answer.Left[0].Detail, "busy.txt") &&
		!strings.Contains(answer.Left[0].Detail, contract.DirContainerd) {
		t.Fatalf("got %+v", answer)
	}
	if slices.ContainsFunc(answer.Removed, func(s string) bool { return strings.HasSuffix(s, contract.DirK) }) {
		t.Error("the answer says that C:\\k was removed")
	}
	r.SetPathFault(contract.DirContainerd+`\busy.txt`, nil)
	r.SetPathFault(contract.PathContainerdShim, nil)
	cleanUp(t, r)
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
		t.Error(line)
	}
}

func TestAnOrdinaryUsersDirectoryIsNotTrusted(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	write(t, r, contract.PathState, `{"directories":["C:\\Users"]}`, winos.AccessInherit)
	before := r.Snapshot()
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	if len(found.Problems) != 1 || found.Problems[0].Reason != contract.ReasonConflictingSoftware {
		t.Errorf("preflight: %v", found.Problems)
	}
	if answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap,
		bootstrapRequest()); answer.Problem == nil || answer.Problem.Reason != contract.ReasonConflictingSoftware {
		t.Errorf("bootstrap: %v", answer.Problem)
	}
	cleanUp(t, r)
	for _, line := range sim.Diff(before, r.Snapshot(), r.Home()) {
		t.Error(line)
	}
}

// kubelet uses an existing private key. If a user created this key, the user could take over the node's identity.
func TestA50_AKeyThatAnOrdinaryUserLeftForKubeletIsNotUsed(t *testing.T) {
	t.Parallel()
	for name, key := range map[string]string{"a key lies there": "a key that a user has", "the directory is empty": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			if err := r.Host().Files.MkdirAll(contract.DirKubeletPKI, winos.AccessInherit); err != nil {
				t.Fatal(err)
			}
			const theirs = contract.DirKubeletPKI + `\kubelet-client.key.tmp`
			if key != "" {
				write(t, r, theirs, key, winos.AccessInherit)
			}
			r.unapproved.Store(true) // only with a pending request would kubelet have its own key
			join(t, r)
			info, err := r.Host().Files.Stat(contract.DirKubeletPKI)
			if err != nil || info.Access != winos.AccessAdministrators {
				t.Errorf("the directory is %+v, %v", info, err)
			}
			stop(t, r, contract.ServiceKubelet)
			if content, err := winos.ReadFile(r.Host().Files, theirs); err == nil && string(content) == "a key that a user has" {
				t.Error("the user's key still exists")
			}
			stateFile, err := state.Read(r.Host().Files)
			if err != nil || !stateFile.Directories.Has(contract.DirKubeletPKI) {
				t.Errorf("the state file lacks the directory, %v", err)
			}
		})
	}
}

// The owner of a directory may replace everything in it, at any depth, even files of other owners.
func TestA50_ADirectoryAboveKubeletsKeysThatAUserOwnsIsRefused(t *testing.T) {
	t.Parallel()
	for _, dir := range []string{`C:\var`, `C:\var\lib`, `C:\var\lib\kubelet`, contract.DirLog,
		contract.DirLog + `\kubelet`} {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			refused := func(what string, problem *contract.Problem) {
				t.Helper()
				if problem == nil || problem.Reason != contract.ReasonConflictingSoftware ||
					!strings.HasPrefix(problem.Detail, dir+" ") {
					t.Errorf("%s: %v", what, problem)
				}
			}
			if err := errors.Join(r.Host().Files.MkdirAll(dir, winos.AccessInherit), r.Disown(dir)); err != nil {
				t.Fatal(err)
			}
			found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
			if len(found.Problems) != 1 {
				t.Fatalf("preflight: %v", found.Problems)
			}
			refused("preflight", &found.Problems[0])
			refused("bootstrap", call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap,
				bootstrapRequest()).Problem)
			if _, err := r.Host().Services.Get(t.Context(), contract.ServiceKubelet); !errors.Is(err, winos.ErrNotFound) {
				t.Errorf("kubelet: %v", err)
			}
		})
	}
}

// On some volumes, new directories inherit a right from C:\ that lets users rename the content of the directories.
// Even then, users must get no rights to the daemon's files.
func TestAMachineJoinsWhoseUsersMayRenameWhatIsMadeInC(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	r.Loosen()
	join(t, r)
	awaitReconciled(t, r)
	for _, path := range []string{`C:\var`, contract.DirLog + `\kubelet`, contract.DirKubelet} {
		info, err := r.Host().Files.Stat(path)
		if err != nil || info.Foreign || info.Access != winos.AccessInherit { // programs in pods read these logs
			t.Errorf("%s: %+v, %v", path, info, err)
		}
	}
	join(t, r)
}

// With an external network plugin, containerd reads files from this directory and runs programs from it.
func TestA50_ACNIDirectoryThatAUserOwnsIsRefusedOnAnExternalNetwork(t *testing.T) {
	t.Parallel()
	const config, plugin = contract.DirExternalCNIConfig + `\00-x.conflist`, contract.DirExternalCNI + `\x.exe`
	ask := func(t *testing.T, r *rig, external bool) (problems [2]string) {
		t.Helper()
		first, second := preflightRequest(r), bootstrapRequest()
		first.ExternalNetwork, second.ExternalNetwork = external, external
		found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, first))
		for _, problem := range found.Problems {
			problems[0] += string(problem.Reason) + " " + problem.Detail
		}
		problem := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, second).Problem
		if problem != nil && problem.Reason != contract.ReasonPayloadIncomplete { // the payload is checked later
			problems[1] = string(problem.Reason) + " " + problem.Detail
		}
		return problems
	}
	for _, path := range []string{`C:\etc`, `C:\etc\cni`, contract.DirExternalCNIConfig, `C:\opt`, `C:\opt\cni`,
		contract.DirExternalCNI, config, plugin} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			write(t, r, config, "{}", winos.AccessInherit)
			write(t, r, plugin, "MZ", winos.AccessInherit)
			if err := r.Disown(path); err != nil {
				t.Fatal(err)
			}
			for _, problem := range ask(t, r, true) {
				if !strings.HasPrefix(problem, string(contract.ReasonConflictingSoftware)+" "+path+" ") {
					t.Errorf("the problem is %q", problem)
				}
			}
			if problems := ask(t, r, false); problems != [2]string{} {
				t.Errorf("without an external network plugin, these directories are not used: %q", problems)
			}
		})
	}
	t.Run("the directories belong to an administrator", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, sim.Options{})
		write(t, r, config, "{}", winos.AccessInherit)
		write(t, r, plugin, "MZ", winos.AccessInherit)
		if problems := ask(t, r, true); problems != [2]string{} {
			t.Errorf("the problems are %q", problems)
		}
	})
	t.Run("the directories are missing", func(t *testing.T) {
		t.Parallel()
		if problems := ask(t, newRig(t, sim.Options{}), true); problems != [2]string{} {
			t.Errorf("the problems are %q", problems)
		}
	})
}

func set(t *testing.T, r *rig, name, value string) {
	t.Helper()
	if err := r.Host().Environment.Set(t.Context(), name, value); err != nil {
		t.Fatal(err)
	}
}

func stop(t *testing.T, r *rig, name string) {
	t.Helper()
	if err := r.Host().Services.Stop(t.Context(), name); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, r *rig, path, content string, access winos.Access) {
	t.Helper()
	files := r.Host().Files
	if err := files.MkdirAll(path[:strings.LastIndex(path, `\`)], winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	if err := winos.WriteFile(files, path, strings.NewReader(content), access); err != nil {
		t.Fatal(err)
	}
}

func TestCleanupGivesTheHostItsNameBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Hostname: "WIN-OLD", Costs: sim.Costs{ShutdownDelay: 20 * time.Millisecond}})
	boot, err := r.WaitBoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	must(t, call[contract.PrepareAnswer](t, r, contract.VerbPrepare, contract.PrepareRequest{Hostname: "win-a"}))
	await(t, "going down", boot.Down)
	if _, err = r.WaitBoot(t.Context()); err != nil {
		t.Fatal(err)
	}
	join(t, r)
	if answer := cleanUp(t, r); !answer.RebootAdvised {
		t.Error("the answer does not say that the next boot restores the name")
	}
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
		t.Error(line)
	}
}
