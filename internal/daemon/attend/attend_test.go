package attend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/attend"
	"github.com/windows-nodes/wmco/internal/daemon/verbs"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/userdata"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/sim"
)

const program = "MZ wicd one"

// rig is a machine without an SSH server.
type rig struct {
	*sim.Machine
	*api
	fresh sim.Snapshot
	// verbs counts the executed verbs. hold, if set, makes verbs wait.
	verbs atomic.Int64
	hold  atomic.Pointer[func(ctx context.Context)]
	pace  attend.Pace
}

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{api: newAPI(t), pace: attend.Pace{Beat: 20 * time.Millisecond, Retry: 20 * time.Millisecond,
		Gone: 200 * time.Millisecond, Refused: 200 * time.Millisecond}}
	r.blobs[contract.Digest([]byte(program))] = program
	var err error
	r.Machine, err = sim.New(sim.Options{Hostname: "WIN-A", Programs: map[string]sim.Program{
		"windows-instance-config-daemon.exe": r.daemon}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			text, _ := winos.ReadFile(r.Host().Files, r.rpc(attend.LogFile))
			t.Logf("the log:\n%s", text)
		}
		if err := r.Machine.Close(); err != nil {
			t.Error(err)
		}
	})
	r.fresh = r.Snapshot()
	return r
}

func (r *rig) daemon(ctx context.Context, p *sim.Process) int {
	if len(p.Args) > 3 && p.Args[2] == "--rpc" {
		r.verbs.Add(1)
		if hold := r.hold.Load(); hold != nil {
			(*hold)(ctx)
		}
	}
	cmd := verbs.New(verbs.Options{Host: p.Host, Version: "test", HomeDir: p.Machine.Home(), Self: p.Args[0],
		Stdin: p.Stdin, Stdout: p.Stdout, Stderr: p.Stderr, RunService: p.RunService, Pace: r.pace})
	cmd.SetArgs(append([]string{}, p.Args[1:]...))
	if err := cmd.ExecuteContext(ctx); err != nil {
		_, _ = p.Stderr.Write([]byte(err.Error() + "\n"))
		return 1
	}
	return 0
}

func blob(content string) contract.Blob {
	return contract.Blob{Digest: contract.Digest([]byte(content)), Size: int64(len(content))}
}

func (r *rig) attendance() contract.Attendance {
	return contract.Attendance{APIServer: r.URL, CA: r.serverCA(), Payload: payloadPath, Namespace: namespace, UID: uid,
		Token: "token-1"}
}

// command returns the join command that the cluster prints.
func (r *rig) command(t *testing.T, a contract.Attendance) string {
	t.Helper()
	text, err := userdata.JoinCommand(userdata.Join{Program: blob(program), Attendance: a, URL: r.URL + payloadPath +
		contract.PayloadServerPath + blob(program).Digest})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// join runs the join command, and returns its output.
func (r *rig) join(t *testing.T) string {
	t.Helper()
	output, err := fleet.RunJoinCommand(t.Context(), r.Machine, r.command(t, r.attendance()))
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// attend runs the program with an Attendance, as an administrator who already has the program.
func (r *rig) attend(t *testing.T, a contract.Attendance) (output string, code int) {
	t.Helper()
	r.rpcDir(t)
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	code = r.Exec(t.Context(), sim.ExecRequest{CommandLine: contract.RPCDir + `\` +
		contract.UploadedName(blob(program).Digest) + " attend", Stdin: strings.NewReader("\ufeff" + string(text)),
		Stdout: &said, Stderr: &said})
	return said.String(), code
}

func (r *rig) rpc(name string) string { return r.Home() + `\` + contract.RPCDir + `\` + name }

func (r *rig) rpcDir(t *testing.T) {
	t.Helper()
	files, path := r.Host().Files, r.rpc(contract.UploadedName(blob(program).Digest))
	if there, _ := winos.Exists(files, path); there {
		return
	}
	if err := errors.Join(files.MkdirAll(r.Home()+`\`+contract.RPCDir, winos.AccessInherit),
		winos.WriteFile(files, path, strings.NewReader(program), winos.AccessInherit)); err != nil {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, what string, ready func() bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for !ready() {
		select {
		case <-limit:
			t.Fatalf("%s did not happen in time", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// answered waits for the answer of a call.
func (r *rig) answered(t *testing.T, id string) (answer contract.CallHost) {
	t.Helper()
	eventually(t, "the answer to "+id, func() bool {
		answer = r.host()
		return answer.Answered(id)
	})
	return answer
}

func result[T any](t *testing.T, answer contract.CallHost) T {
	t.Helper()
	var decoded contract.Answer[T]
	if err := json.Unmarshal(answer.Answer, &decoded); err != nil || answer.Fault != "" || decoded.Problem != nil {
		t.Fatalf("%v, %q, %v", err, answer.Fault, decoded.Problem)
	}
	return decoded.Result
}

func (r *rig) service(t *testing.T) winos.Service {
	t.Helper()
	s, err := r.Host().Services.Get(t.Context(), contract.ServiceAttend)
	if err != nil && !errors.Is(err, winos.ErrNotFound) {
		t.Fatal(err)
	}
	return s
}

// restart starts the service earlier than the service manager would.
func (r *rig) restart(t *testing.T) {
	t.Helper()
	eventually(t, "the end of the service", func() bool { return r.service(t).State == winos.ServiceStopped })
	if err := r.Host().Services.Start(t.Context(), contract.ServiceAttend); err != nil {
		t.Fatal(err)
	}
}

// preflight writes a preflight call, which always succeeds, and returns its ID.
func (r *rig) preflight() string {
	return r.call(blob(program), contract.VerbPreflight, contract.PreflightRequest{Time: time.Now()})
}

// left checks that the service and all of its files were removed, except the paths in the parameter `but`.
func (r *rig) left(t *testing.T, but ...string) {
	t.Helper()
	eventually(t, "leaving", func() bool { return r.service(t).Name == "" })
	r.PowerCut()
	r.PowerOn()
	for _, line := range sim.Diff(r.fresh, r.Snapshot(), append(but, contract.DirLog)...) {
		t.Error(line)
	}
}

func TestA85_AHostJoinsByOneCommandAndCarriesOutCalls(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	output := r.join(t)
	for _, want := range []string{"Joining this host", "carries out the operator's calls"} {
		if !strings.Contains(output, want) {
			t.Errorf("the output for the administrator lacks %q:\n%s", want, output)
		}
	}
	eventually(t, "the host's report", func() bool { return r.host().BootID != "" })
	for _, name := range []string{contract.HostStateFile, "attend.pem"} {
		info, err := r.Host().Files.Stat(r.rpc(name))
		if err != nil || info.Access != winos.AccessAdministrators {
			t.Errorf("%s: %v, %v", name, info.Access, err)
		}
	}
	r.with(func() { r.tokens = nil })

	facts := result[contract.PreflightAnswer](t, r.answered(t, r.preflight())).Facts
	if facts.Hostname != "win-a" {
		t.Errorf("the answer has the host name %q", facts.Hostname)
	}
	const kubelet = "MZ kubelet"
	r.with(func() { r.blobs[blob(kubelet).Digest] = kubelet })
	fetched := result[contract.ReceiveAnswer](t, r.answered(t, r.call(blob(program), contract.VerbReceive,
		contract.ReceiveRequest{Stream: "stream", Blobs: []contract.Blob{blob(kubelet)}})))
	if len(fetched.Stored) != 1 || len(fetched.Missing) != 0 {
		t.Errorf("fetched %+v", fetched)
	}
	before := r.host()
	r.PowerCut()
	r.PowerOn()
	eventually(t, "attending after a reboot", func() bool { return r.host().BootID != before.BootID })
	r.answered(t, r.preflight())
	if n := r.verbs.Load(); n != 3 {
		t.Errorf("%d verbs were executed for three calls", n)
	}
	cleaned := result[contract.CleanupAnswer](t, r.answered(t, r.call(blob(program), contract.VerbCleanup,
		contract.CleanupRequest{})))
	if text := fmt.Sprint(cleaned.Removed); strings.Contains(text, contract.ServiceAttend) || len(cleaned.Left) > 0 ||
		!strings.Contains(text, contract.DirStore) {
		t.Errorf("cleaned %+v", cleaned)
	}
	if r.service(t).State != winos.ServiceRunning {
		t.Error("the cleanup has removed the service")
	}
	text, err := winos.ReadFile(r.Host().Files, r.rpc(attend.LogFile))
	if err != nil || !strings.Contains(string(text), "call-4") || strings.Contains(string(text), "token-1") {
		t.Errorf("%v\n%s", err, text)
	}
}

func TestA85_AShortCallCostsTheHostOneWrite(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pace.Beat = time.Hour
	r.join(t)
	for range 3 {
		r.answered(t, r.preflight())
	}
	if n := r.requests(contract.HostUserPrefix + uid + " PATCH"); n != 1+3 {
		t.Errorf("%d writes for a first report and three calls", n)
	}
}

func TestA85_TheTokenIsForgottenWithTheCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	content, err := winos.ReadFile(r.Host().Files, r.rpc(contract.HostStateFile))
	if err != nil || strings.Contains(string(content), "token-1") {
		t.Errorf("%v, %s", err, content)
	}
	if n := r.requests("token-1 POST"); n != 1 {
		t.Errorf("the token was used for %d requests", n)
	}
}

func TestA86_ACallThatWasCutShortIsRunAgain(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(t *testing.T, r *rig){
		"the service is killed": func(t *testing.T, r *rig) {
			t.Helper()
			if err := r.Kill(r.service(t).PID); err != nil {
				t.Fatal(err)
			}
			r.restart(t)
		},
		"the host is rebooted": func(_ *testing.T, r *rig) {
			r.PowerCut()
			r.PowerOn()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.join(t)
			begun := make(chan struct{}, 9)
			hold := func(ctx context.Context) {
				begun <- struct{}{}
				<-ctx.Done()
			}
			r.hold.Store(&hold)
			id := r.preflight()
			<-begun
			eventually(t, "beats", func() bool { h := r.host(); return h.Call == id && h.Beat > 2 })
			r.hold.Store(nil)
			cut(t, r)
			result[contract.PreflightAnswer](t, r.answered(t, id))
			entries, err := r.Host().Files.List(r.Home() + `\` + contract.RPCDir)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				if strings.HasPrefix(e.Name, id) {
					t.Errorf("%s stays", e.Name)
				}
			}
		})
	}
}

func TestA86_ACallThatNobodyWaitsForIsEnded(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	ended := make(chan struct{})
	hold := func(ctx context.Context) {
		<-ctx.Done()
		close(ended)
	}
	r.hold.Store(&hold)
	r.preflight()
	eventually(t, "beginning", func() bool { return r.verbs.Load() == 1 })
	r.hold.Store(nil)
	second := r.preflight()
	<-ended
	result[contract.PreflightAnswer](t, r.answered(t, second))
}

func TestA86_ACleanupIsNotEndedByAnotherCall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	goOn := make(chan struct{})
	var killed atomic.Bool
	hold := func(ctx context.Context) {
		select {
		case <-ctx.Done():
			killed.Store(true)
		case <-goOn:
		}
	}
	r.hold.Store(&hold)
	r.call(blob(program), contract.VerbCleanup, contract.CleanupRequest{})
	eventually(t, "beginning", func() bool { return r.verbs.Load() == 1 })
	second := r.preflight()
	beats := r.host().Beat
	eventually(t, "beats", func() bool { return r.host().Beat > beats+3 })
	close(goOn)
	result[contract.PreflightAnswer](t, r.answered(t, second))
	if killed.Load() {
		t.Error("the cleanup was killed")
	}
}

func TestA86_ANewerProgramIsFetchedAndAnAnswerIsOfTheProgram(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	const newer, third = "MZ wicd two", "MZ wicd three"
	r.with(func() { r.blobs[blob(newer).Digest], r.blobs[blob(third).Digest] = newer, third })
	for _, p := range []string{newer, third} {
		id := r.call(blob(p), contract.VerbPreflight, contract.PreflightRequest{Time: time.Now(), Daemon: blob(p).Digest})
		if problems := result[contract.PreflightAnswer](t, r.answered(t, id)).Problems; len(problems) > 0 {
			t.Error(problems)
		}
	}
	for content, stays := range map[string]bool{program: true, newer: false, third: true} {
		there, err := winos.Exists(r.Host().Files, r.rpc(contract.UploadedName(blob(content).Digest)))
		if err != nil || there != stays {
			t.Errorf("%s: %t, %v", content, there, err)
		}
	}
	if a := r.answered(t, r.call(blob(program), "no such verb", nil)); a.Fault == "" {
		t.Error("an unknown verb is executed")
	}
	if a := r.answered(t, r.call(blob(program), "nonsense", nil)); !strings.Contains(a.Fault, "exit code 1") {
		t.Errorf("the answer to an invalid call is %q", a.Fault)
	}
}

func TestA86_AHostWhoseInstanceIsGoneLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	r.remove()
	r.left(t)
}

func TestA86_AHostThatIsRefusedForLongLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	r.with(func() { r.refuses = true })
	r.CloseClientConnections()
	r.left(t)
}

func TestA86_AnInstanceThatIsMadeAnewIsGreeted(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pace.Gone = time.Hour
	r.join(t)
	r.remove()
	r.create()
	eventually(t, "greeting", func() bool { return r.host().BootID != "" })
	r.answered(t, r.preflight())
}

func TestA85_AHostThatIsDeniedSaysWhyAndLeaves(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.denies = true
	output, code := r.attend(t, r.attendance())
	if code == 0 || !strings.Contains(output, "the token was used") || !strings.Contains(output, "new command") {
		t.Errorf("%d, %s", code, output)
	}
	r.left(t, r.Home())
}

func TestA85_WhatKeepsAHostFromJoiningIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(r *rig, a *contract.Attendance)
		want   string
	}{
		"a proxy that inspects TLS": {func(_ *rig, a *contract.Attendance) {
			a.CA = strings.ReplaceAll(other, "\t", "")
		}, "inspects TLS"},
		"a clock that is wrong": {func(r *rig, _ *contract.Attendance) {
			r.SetClockOffset(100 * 365 * 24 * time.Hour)
		}, "clock"},
		"a token that has ended": {func(r *rig, _ *contract.Attendance) { r.tokens = nil }, "token"},
		"no token":               {func(_ *rig, a *contract.Attendance) { a.Token = "" }, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			a := r.attendance()
			r.rpcDir(t)
			c.change(r, &a)
			output, code := r.attend(t, a)
			if code == 0 || !strings.Contains(output, c.want) || strings.Contains(output, "token-1") {
				t.Errorf("%d, %s", code, output)
			}
		})
	}
}

func TestA85_ACommandThatIsRunAgainAfterTheFaultIsMended(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.pace.Retry = time.Hour
	r.SetClockOffset(100 * 365 * 24 * time.Hour)
	if output, code := r.attend(t, r.attendance()); code == 0 {
		t.Error(output)
	}
	r.SetClockOffset(0)
	r.join(t)
}

func TestA85_AUserWhoIsNoAdministratorIsToldSo(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.rpcDir(t)
	r.SetAdmin(false)
	err := attend.Attend(t.Context(), attend.Options{Host: r.Host(), Dir: r.rpc(""), Self: r.rpc("wicd-0.exe")},
		strings.NewReader("{}"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "Run as administrator") {
		t.Error(err)
	}
}

func TestA85_ACommandThatIsRunAgainChangesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	pid, requests := r.service(t).PID, len(r.signed())
	if output := r.join(t); !strings.Contains(output, "running already") {
		t.Error(output)
	}
	if now := r.service(t).PID; now != pid || len(r.signed()) != requests {
		t.Error("the service was restarted, or a certificate requested")
	}
}

// All Machines have the same user data, and may run it at every boot. So the host's key, not the user data,
// identifies the host.
func TestA88_TheHostOfAMachineIsNamedByItsKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.with(func() { r.id = "" })
	a := r.attendance()
	a.UID = ""
	for range 2 {
		if output, code := r.attend(t, a); code != 0 {
			t.Fatal(output)
		}
	}
	names := r.signed()
	if len(names) != 1 || len(r.id) != len(contract.Digest(nil)) || !strings.HasPrefix(names[0], "windows-host-"+r.id) {
		t.Errorf("the requests are %v, the host's ID is %q", names, r.id)
	}
	result[contract.PreflightAnswer](t, r.answered(t, r.preflight()))
}

func TestA85_TheCommandOfAnotherInstanceGetsAnotherCertificate(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	a := r.attendance()
	a.UID, a.Token = "4567-uid", "token-2"
	r.with(func() {
		r.tokens, r.id = map[string]bool{"token-2": true}, a.UID
		r.secret.Name, r.secret.Data = contract.CallSecretPrefix+a.UID, map[string][]byte{}
	})
	if output, code := r.attend(t, a); code != 0 {
		t.Fatal(output)
	}
	if names := r.signed(); len(names) != 2 || !strings.HasPrefix(names[1], "windows-host-"+a.UID+"-") {
		t.Errorf("the requests are %v", names)
	}
	result[contract.PreflightAnswer](t, r.answered(t, r.preflight()))
}

// The first command was interrupted after the API server had signed the request.
func TestA85_ACommandThatIsRunAgainUsesTheSameKey(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.with(func() { r.unsigned = true })
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		eventually(t, "the request", func() bool { return len(r.signed()) == 1 })
		cancel()
	}()
	if output, err := fleet.RunJoinCommand(ctx, r.Machine, r.command(t, r.attendance())); err == nil {
		t.Error(output)
	}
	r.with(func() { r.unsigned = false })
	r.join(t)
	if names := r.signed(); len(names) != 1 {
		t.Errorf("the requests are %v", names)
	}
}

func TestA85_AHostOfAnotherClusterRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.join(t)
	a := r.attendance()
	a.APIServer, a.CA = "https://other.example.com:6443", strings.ReplaceAll(other, "\t", "")
	if output, code := r.attend(t, a); code == 0 || !strings.Contains(output, "for another cluster") ||
		!strings.Contains(output, r.URL) {
		t.Errorf("%d, %s", code, output)
	}
	r.answered(t, r.preflight())
}

// other is a CA that has not signed any certificate here.
const other = `-----BEGIN CERTIFICATE-----
MIIBTDCB86ADAgECAgEBMAoGCCqGSM49BAMCMBUxEzARBgNVBAMTCmFub3RoZXIg
Q0EwIBcNNzAwMTAxMDAwMDAwWhgPMjA5NjEwMDIwNzA2NDBaMBUxEzARBgNVBAMT
CmFub3RoZXIgQ0EwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATOpdwpcVgqqcfB
iVmQ34mBHmDjstuJuRkVSxGCc5HXF4vP07LEPPAN4klLE4GpmO2Ie9rJG6DgNdJl
1GssMAvBozIwMDAPBgNVHRMBAf8EBTADAQH/MB0GA1UdDgQWBBSGZq/9VxrIlfO1
fJVX8UJ0AF4PrDAKBggqhkjOPQQDAgNIADBFAiEA8UXZfO7aVp20qCsFI/fIIudW
amyME0vGKCd9Lr8Acz4CICmH0oQ9/vVIw7+yTU6WY/P2e3+4z5L++G2uFpNxlCg7
-----END CERTIFICATE-----
`
