package verbs_test

import (
	"bytes"
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestA41_AHostWhoseProgramsStillRunIsCleanedAllTheSame(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	write(t, r, contract.PathContainerdShim, "MZ", winos.AccessInherit)
	for range 2 { // a drain does not evict containers of a DaemonSet
		if _, err := r.StartProgram(contract.PathContainerdShim); err != nil {
			t.Fatal(err)
		}
	}
	r.StopLinger(contract.ServiceCSIProxy, 24*time.Hour)
	r.StopLinger(contract.ServiceHybridOverlay, 24*time.Hour)
	answer := cleanUp(t, r)
	if answer.RebootAdvised {
		t.Error("the answer advises a needless reboot")
	}
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
		t.Error(line)
	}
	for _, p := range r.Processes() {
		if contract.Within(contract.DirK, p.Exe) {
			t.Errorf("%s still runs", p.Exe)
		}
	}
}

func TestA41_AProgramThatCannotBeEndedGoesWithTheNextBootAndThatIsToldOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	write(t, r, contract.PathContainerdShim, "MZ", winos.AccessInherit)
	r.SetUnkillable(contract.PathContainerdShim, true) // as if a driver blocked it
	if _, err := r.StartProgram(contract.PathContainerdShim); err != nil {
		t.Fatal(err)
	}
	if answer := cleanUp(t, r); !answer.RebootAdvised {
		t.Error("the answer does not advise a reboot")
	}
	if there, err := winos.Exists(r.Host().Files, contract.DirK); err != nil || there {
		t.Errorf(`C:\k still exists: %v`, err)
	}
	if answer := cleanUp(t, r); answer.RebootAdvised || len(answer.Removed) > 0 {
		t.Errorf("the second answer advises a reboot again: %+v", answer)
	}
	r.PowerCut()
	r.PowerOn()
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
		t.Error(line)
	}
}

// Volumes of pods, and images, may contain secrets. So cleanup must remove them, except those that were there before
// the join.
func TestA32_VolumesAndImagesOfOursGoAndThoseThatWereThereBeforeStay(t *testing.T) {
	t.Parallel()
	const (
		volume = `C:\var\lib\kubelet\pods\7f6c\volumes\kubernetes.io~secret\password\..data\password`
		layers = `C:\ProgramData\containerd\root\io.containerd.snapshotter.v1.windows\snapshots`
		blob   = `C:\ProgramData\containerd\root\io.containerd.content.v1.content\blobs\sha256\aa`
	)
	use := func(t *testing.T, r *rig) { // kubelet and containerd create these files
		write(t, r, volume, "hunter2", winos.AccessInherit)
		write(t, r, blob, "a layer", winos.AccessInherit)
		write(t, r, layers+`\1\Files\Windows\System32\kernel32.dll`, "MZ", winos.AccessInherit)
		// The file belongs to TrustedInstaller.
		r.SetPathFault(layers+`\1\Files\Windows\System32\kernel32.dll`, winos.ErrDenied)
	}
	t.Run("ours", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, sim.Options{})
		join(t, r)
		use(t, r)
		if answer := cleanUp(t, r); len(answer.Kept) > 0 {
			t.Errorf("the kept paths are %q", answer.Kept)
		}
		for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
			t.Error(line)
		}
		r.upload(t)
		join(t, r)
	})
	t.Run("data of another kubelet and containerd", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, sim.Options{})
		use(t, r)
		before := r.Snapshot()
		join(t, r)
		cleanUp(t, r)
		for _, line := range sim.Diff(before, r.Snapshot(), kept(r)...) {
			t.Error(line)
		}
	})
	t.Run("a file that is in use is named, and the cleanup succeeds", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, sim.Options{})
		join(t, r)
		use(t, r)
		file, err := r.Host().Files.Open(volume)
		if err != nil {
			t.Fatal(err)
		}
		answer := cleanUp(t, r)
		if len(answer.Kept) != 1 || answer.Kept[0] != `C:\var\lib\kubelet` || !answer.RebootAdvised {
			t.Errorf("the answer is %+v", answer)
		}
		if err = file.Close(); err != nil {
			t.Fatal(err)
		}
		if there, err := winos.Exists(r.Host().Files, contract.DirK); err != nil || there {
			t.Errorf(`C:\k still exists: %v`, err)
		}
	})
}

// If an administrator stored files in the daemon's directory, cleanup must keep them and name them in its answer.
func TestFilesOfOthersInOurDirectoryStayAndAreNamed(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	const theirs = contract.DirK + `\my-script.ps1`
	write(t, r, theirs, "theirs", winos.AccessInherit)
	answer := cleanUp(t, r)
	if content, err := winos.ReadFile(r.Host().Files, theirs); err != nil || string(content) != "theirs" {
		t.Errorf("the administrator's file has %q, %v", content, err)
	}
	if len(answer.Kept) != 1 || answer.Kept[0] != theirs {
		t.Errorf("the kept paths are %q", answer.Kept)
	}
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), append(kept(r), contract.DirK)...) {
		t.Error(line)
	}
	join(t, r)
}

func TestA45_CleanupGoesOnWithoutTheConnectionThatItCuts(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	if _, err := r.CreateHNSNetwork(winos.HNSNetwork{Name: contract.HybridOverlayNetwork,
		Subnet: netip.MustParsePrefix("10.132.1.0/24")}); err != nil {
		t.Fatal(err)
	}
	if attempt(t, r, contract.VerbCleanup, contract.CleanupRequest{}) {
		t.Fatal("the connection survived the removal of the network, so the test shows nothing")
	}
	eventually(t, "the end of the cleanup", func() bool { return !hasProcess(r, "cleanup") })
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
		if !strings.Contains(line, contract.ServiceCleanup) {
			t.Error("without another call:", line)
		}
	}
	starts := r.Starts().Processes
	answer := must(t, call[contract.CleanupAnswer](t, r, contract.VerbCleanup, contract.CleanupRequest{}))
	if len(answer.Left) > 0 || len(answer.Removed) < 10 {
		t.Errorf("the second answer lacks the result of the first call: %+v", answer)
	}
	if now := r.Starts().Processes; now > starts+3 { // the shell, the verb, and at most one more
		t.Errorf("the second call started %d processes", now-starts)
	}
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
		t.Error(line)
	}
	if answer = cleanUp(t, r); len(answer.Removed) > 0 {
		t.Errorf("the third call removed %q", answer.Removed)
	}
	r.upload(t)
	join(t, r)
}

// Some versions of OpenSSH for Windows don't end a command when its connection breaks. So cleanup must end verbs that
// still run.
func TestAVerbThatIsStillAtWorkIsEndedBeforeTheHostIsCleaned(t *testing.T) {
	t.Parallel()
	for name, clean := range map[string]func(t *testing.T, r *rig){
		"by the operator": func(t *testing.T, r *rig) { cleanUp(t, r) },
		"by hand, with a program of its own": func(t *testing.T, r *rig) {
			const exe = `C:\Tools\windows-instance-config-daemon.exe`
			write(t, r, exe, "MZ", winos.AccessAdministrators)
			if code := r.Exec(t.Context(), sim.ExecRequest{CommandLine: exe + " cleanup"}); code != 0 {
				t.Errorf("exit code %d", code)
			}
			for _, path := range []string{exe, `C:\Tools`} {
				if err := r.Host().Files.Remove(path); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, sim.Options{})
			held, ended := holdBootstrap(t, r)
			await(t, "holding the bootstrap", held)
			r.life.Store(nil)
			clean(t, r)
			// Windows ends a process a moment after the request.
			eventually(t, "the end of the bootstrap",
				func() bool { return !hasProcess(r, string(contract.VerbBootstrap)) })
			ended()
			for _, line := range sim.Diff(r.fresh, r.Snapshot(), kept(r)...) {
				t.Error(line)
			}
		})
	}
}

// holdBootstrap starts a bootstrap that hangs in the middle of its work until it is killed.
func holdBootstrap(t *testing.T, r *rig) (held <-chan struct{}, ended func()) {
	t.Helper()
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), wanted())))
	begun := make(chan struct{})
	// The 60th call writes the state file, which stays open as long as the process exists.
	r.life.Store(&mortal{at: 60, hold: func(ctx context.Context) { close(begun); <-ctx.Done() }})
	content, err := json.Marshal(bootstrapRequest())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	over := make(chan struct{})
	go func() {
		defer close(over)
		line := contract.RPCDir + `\` + contract.UploadedName(r.digest) + " " + string(contract.VerbBootstrap)
		r.Exec(ctx, sim.ExecRequest{CommandLine: line, Stdin: bytes.NewReader(content)})
	}()
	return begun, func() {
		cancel()
		<-over
	}
}

// hasProcess reports whether a process has a word in its command line.
func hasProcess(r *rig, word string) bool {
	return slices.ContainsFunc(r.Processes(), func(p sim.ProcessInfo) bool {
		return strings.Contains(p.CommandLine, word)
	})
}
