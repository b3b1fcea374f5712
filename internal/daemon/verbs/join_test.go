package verbs_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	nodepayload "github.com/windows-nodes/wmco/internal/daemon/payload"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// join makes the machine a node, as the operator does.
func join(t *testing.T, r *rig) {
	t.Helper()
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	if len(found.Problems) > 0 {
		t.Fatal(found.Problems)
	}
	if len(found.Missing) > 0 {
		got := must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive,
			send(t, r.Host().Files, r.Home(), found.Missing)))
		if len(got.Missing) > 0 {
			t.Fatalf("after receive, these blobs are missing: %v", got.Missing)
		}
	}
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest()))
	if made.NodeName != "win-a" {
		t.Fatalf("the host's node name is %q", made.NodeName)
	}
	must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, r.handoverRequest(t, made.DaemonCSR)))
	if service(t, r, contract.ServiceDaemon).State != winos.ServiceRunning {
		t.Fatal("the daemon does not run")
	}
}

func service(t *testing.T, r *rig, name string) winos.Service {
	t.Helper()
	s, err := r.Host().Services.Get(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eventually waits until ready returns true.
func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ready() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s did not happen in time", what)
		case <-tick.C:
		}
	}
}

// await waits until a channel is closed.
func await(t *testing.T, what string, closed <-chan struct{}) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	select {
	case <-closed:
	case <-limit.C:
		t.Fatalf("%s did not happen in time", what)
	}
}

func TestAMachineJoins(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	if found.Joined || found.Running || len(found.Missing) != len(wanted()) || found.Facts.Hostname != "win-a" ||
		found.Facts.NodeIP != r.Address().String() {
		t.Errorf("preflight of a fresh machine: %+v", found)
	}
	join(t, r)
	for _, name := range []string{"containerd", "kubelet", contract.ServiceDaemon} {
		s := service(t, r, name)
		if s.State != winos.ServiceRunning || !strings.HasPrefix(s.Description, contract.ManagedDescription) {
			t.Errorf("%s is %s, described as %q", name, s.State, s.Description)
		}
	}
	kubelet := service(t, r, "kubelet")
	if !strings.HasSuffix(kubelet.Command, " --node-ip="+r.Address().String()) ||
		kubelet.Environment["HTTP_PROXY"] == "" {
		t.Errorf("kubelet: %q with %v", kubelet.Command, kubelet.Environment)
	}
	for _, secret := range []string{contract.PathDaemonCertificate, contract.PathDaemonKubeconfig, contract.PathState,
		contract.PathKubelet, contract.DirK, contract.DirDaemonCerts, contract.DirStore} {
		info, err := r.Host().Files.Stat(secret)
		if err != nil || info.Access != winos.AccessAdministrators {
			t.Errorf("%s: %+v, %v", secret, info, err)
		}
	}
	if found = must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight,
		preflightRequest(r))); !found.Joined || !found.Running || len(found.Missing) > 0 || len(found.Problems) > 0 {
		t.Errorf("preflight of a joined machine: %+v", found)
	}
	eventually(t, "deleting kubelet's bootstrap credential", func() bool {
		there, err := winos.Exists(r.Host().Files, contract.PathBootstrapKubeconfig)
		return err == nil && !there
	})
}

func TestASecondJoinLeavesWhatRunsAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	before := map[string]uint32{}
	for _, name := range []string{"containerd", "kubelet"} {
		before[name] = service(t, r, name).PID
	}
	join(t, r)
	for name, pid := range before {
		if now := service(t, r, name).PID; now != pid {
			t.Errorf("%s was restarted: process %d, before %d", name, now, pid)
		}
	}
}

// A hardening script disables services. Disabled services keep running until the host reboots, and don't start after
// that.
func TestAJoinPutsDisabledServicesRight(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	if err := r.Host().Services.Stop(t.Context(), contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	names := []string{"containerd", "kubelet", contract.ServiceDaemon}
	for _, name := range names {
		if err := r.DisableService(name); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.CrashService("kubelet"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "kubelet has ended", func() bool { return service(t, r, "kubelet").State == winos.ServiceStopped })
	before := service(t, r, "containerd").PID
	join(t, r)
	for _, name := range names {
		if now := service(t, r, name); now.State != winos.ServiceRunning || now.NoAutoStart {
			t.Errorf("%s is %+v", name, now)
		}
	}
	if now := service(t, r, "containerd").PID; now != before {
		t.Error("containerd was restarted")
	}
}

// The answer of a handover was lost, so the operator repeats the call.
func TestARepeatedHandoverPutsTheStartTypeOfTheDaemonRight(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest()))
	request := r.handoverRequest(t, made.DaemonCSR)
	must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, request))
	if err := r.DisableService(contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, request))
	if now := service(t, r, contract.ServiceDaemon); now.NoAutoStart || now.State != winos.ServiceRunning {
		t.Errorf("the service is %+v", now)
	}
}

func TestKubeletStartsAnewWhenItsNodeIsGone(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	before := service(t, r, "kubelet").PID
	request := bootstrapRequest()
	request.Register = true
	must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request))
	if now := service(t, r, "kubelet").PID; now == before {
		t.Error("kubelet was not restarted, so it does not register")
	}
}

// A join must end and replace a suspended daemon. Otherwise the operator could no longer manage the host.
func TestAJoinEndsADaemonThatIsFrozen(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Costs: sim.Costs{ServiceControl: 10 * time.Millisecond}})
	join(t, r)
	frozen := service(t, r, contract.ServiceDaemon).PID
	if err := r.FreezeService(contract.ServiceDaemon); err != nil {
		t.Fatal(err)
	}
	join(t, r)
	if s := service(t, r, contract.ServiceDaemon); s.State != winos.ServiceRunning || s.PID == frozen {
		t.Errorf("the daemon is %s, still in process %d", s.State, s.PID)
	}
	if slices.ContainsFunc(r.Processes(), func(p sim.ProcessInfo) bool { return p.PID == frozen }) {
		t.Error("the old process still exists")
	}
}

func TestBootstrapGivesTheSameKeyAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))
	first := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest()))
	second := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest()))
	// A certificate for the first request must still match the key after the second request.
	_ = second
	request := r.handoverRequest(t, first.DaemonCSR)
	for range 2 {
		must(t, call[contract.HandoverAnswer](t, r, contract.VerbHandover, request))
	}
	another := newRig(t, sim.Options{})
	join(t, another)
	answer := call[contract.HandoverAnswer](t, another, contract.VerbHandover, r.handoverRequest(t, first.DaemonCSR))
	if answer.Problem == nil || !strings.Contains(answer.Problem.Detail, "key that this host does not have") {
		t.Errorf("with a certificate for another host's key: %v", answer.Problem)
	}
}

func TestATruncatedStreamIsResumedWithTheRest(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	files := r.Host().Files
	request := send(t, files, r.Home(), wanted())
	path := r.Home() + `\` + contract.RPCDir + `\` + request.Stream
	content, err := winos.ReadFile(files, path)
	if err != nil {
		t.Fatal(err)
	}
	if err = winos.WriteFile(files, path, bytes.NewReader(content[:len(content)-40]), winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	answer := call[contract.ReceiveAnswer](t, r, contract.VerbReceive, request)
	if answer.Problem == nil || len(answer.Result.Missing) == 0 {
		t.Fatalf("a truncated stream was accepted: %+v", answer)
	}
	if there, _ := winos.Exists(files, path); there {
		t.Error("the stream was not deleted")
	}
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, files, r.Home(), answer.Result.Missing)))
	if found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight,
		preflightRequest(r))); len(found.Missing) > 0 {
		t.Errorf("still missing: %v", found.Missing)
	}
}

// silent is a payload server that accepts connections but doesn't respond.
type silent struct{ asked chan struct{} }

// Open implements payload.Source.
func (s silent) Open(ctx context.Context, _ []string, _ int64) (io.ReadCloser, error) {
	s.asked <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

// While a daemon is trying to fetch payload, the operator must be able to send the same payload over SSH.
func TestWhatTheDaemonWaitsForCanBeSent(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	files := r.Host().Files
	if err := files.MkdirAll(contract.DirStore, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	source := silent{make(chan struct{})}
	fetcher := nodepayload.Fetcher{Source: source, Store: nodepayload.NewStore(files), System: r.Host().System,
		Clock: clock.RealClock{}}
	request := send(t, files, r.Home(), wanted())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = fetcher.Fetch(ctx, request.Blobs) // this fetch never succeeds
	}()
	<-source.asked
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, request))
	stop()
	<-ended
	if missing, err := nodepayload.NewStore(files).Missing(request.Blobs); err != nil || len(missing) > 0 {
		t.Errorf("missing %v, %v", missing, err)
	}
}

// A fault of the store must be reported as a fault of the store. It must not count as a failure of the revision.
func TestABlobThatCanNotBeStoredIsIncomplete(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	request := send(t, r.Host().Files, r.Home(), wanted())
	r.SetPathFault(contract.DirStore+`\`+request.Blobs[0].Digest+".tmp", winos.ErrInUse)
	answer := call[contract.ReceiveAnswer](t, r, contract.VerbReceive, request)
	if p := answer.Problem; p == nil || p.Reason != contract.ReasonPayloadIncomplete {
		t.Errorf("the problem is %v", p)
	}
}

func TestADamagedBlobIsFoundWhenItIsUsed(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	files := r.Host().Files
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, files, r.Home(), wanted())))
	damaged := blobOf(blobs()[contract.PathKubelet])
	err := winos.WriteFile(files, contract.DirStore+`\`+damaged.Digest, strings.NewReader("MZ kubeleX"),
		winos.AccessAdministrators)
	if err != nil {
		t.Fatal(err)
	}
	answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest())
	if answer.Problem == nil || answer.Problem.Reason != contract.ReasonPayloadCorrupt {
		t.Fatalf("want PayloadCorrupt, got %v", answer.Problem)
	}
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, preflightRequest(r)))
	if len(found.Missing) != 1 || found.Missing[0] != damaged {
		t.Fatalf("only the damaged blob should be missing: %v", found.Missing)
	}
	join(t, r)
}

func TestTheHostMustHaveTheNameItJoinsAs(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Hostname: "OTHER"})
	answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest())
	if answer.Problem == nil || answer.Problem.Reason != contract.ReasonHostnameInvalid ||
		answer.Result.NodeName != "other" {
		t.Errorf("got %+v", answer)
	}
}

func TestPrepareRenamesAndRebootsAndIsThenContent(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Hostname: "WIN-OLD",
		Features: map[string]winos.FeatureState{"Containers": winos.FeatureAbsent},
		Costs:    sim.Costs{ShutdownDelay: 50 * time.Millisecond}})
	boot, err := r.WaitBoot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := contract.PreflightRequest{Hostname: "win-a", Time: time.Now()}
	request.Daemon = r.digest
	if found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight,
		request)); len(found.NeedsPrepare) != 2 {
		t.Errorf("needs %q", found.NeedsPrepare)
	}
	answer := must(t, call[contract.PrepareAnswer](t, r, contract.VerbPrepare,
		contract.PrepareRequest{Hostname: "win-a"}))
	if !answer.Rebooting || answer.BootID != boot.ID {
		t.Fatalf("got %+v in boot %s", answer, boot.ID)
	}
	await(t, "going down", boot.Down)
	if boot, err = r.WaitBoot(t.Context()); err != nil || boot.ID == answer.BootID {
		t.Fatalf("boot %s, %v", boot.ID, err)
	}
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, request))
	if len(found.NeedsPrepare) > 0 || len(found.Problems) > 0 || found.Facts.Hostname != "win-a" {
		t.Errorf("after the reboot: %+v", found)
	}
	if answer = must(t, call[contract.PrepareAnswer](t, r, contract.VerbPrepare,
		contract.PrepareRequest{Hostname: "win-a"})); answer.Rebooting {
		t.Error("the host reboots again")
	}
	stateFile, err := state.Read(r.Host().Files)
	if err != nil || stateFile.HostnameBefore != "WIN-OLD" || len(stateFile.Features) != 1 {
		t.Errorf("the state file has %+v, %v", stateFile, err)
	}
}

func TestANewDaemonReplacesTheOne(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	join(t, r)
	before := service(t, r, contract.ServiceDaemon).PID
	r.exe = "MZ wicd of the next version"
	r.upload(t)
	join(t, r)
	content, err := winos.ReadFile(r.Host().Files, contract.PathDaemon)
	if err != nil || string(content) != r.exe {
		t.Errorf("the installed program is %q, %v", content, err)
	}
	if now := service(t, r, contract.ServiceDaemon).PID; now == before {
		t.Error("the old daemon still runs")
	}
}

func TestTheDaemonSpeaksForItself(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	run := func(arguments string) (string, int) {
		var out bytes.Buffer
		code := r.Exec(t.Context(), sim.ExecRequest{CommandLine: contract.RPCDir + `\` +
			contract.UploadedName(r.digest) + " " + arguments, Stdout: &out, Stderr: &out})
		return out.String(), code
	}
	if out, code := run("version"); code != 0 || out != "test\n" {
		t.Errorf("version: %q, %d", out, code)
	}
	out, code := run("--help")
	for _, verb := range []string{"preflight", "prepare", "receive", "bootstrap", "handover", "cleanup", "controller"} {
		if code != 0 || !strings.Contains(out, verb) {
			t.Errorf("the help text lacks %s:\n%s", verb, out)
		}
	}
	if out, code = run("controller --help"); code != 0 || !strings.Contains(out, "--namespace") {
		t.Errorf("the help text of the service lacks --namespace:\n%s", out)
	}
	if out, code = run("preflight"); code != 0 || !strings.Contains(out, `"hostname":"win-a"`) {
		t.Errorf("the output of preflight for people is %q, %d", out, code)
	}
	for _, wrong := range []string{"nonsense", "preflight --rpc ..\\x", "preflight --rpc nothing-there",
		"preflight extra", "controller"} {
		if out, code = run(wrong); code == 0 || out == "" {
			t.Errorf("%s: %q, %d", wrong, out, code)
		}
	}
}
