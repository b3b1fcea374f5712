package sshhost

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/crypto/ssh"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/lab/sim/sshd"
)

const token = "eyJhbGciOiJSUzI1NiIsImtpZCI6Ii1.c2VjcmV0LXRva2VuLW9mLWEtc2VydmljZS1hY2NvdW50"

// secretive is a request that contains a credential.
var secretive = contract.BootstrapRequest{
	NodeName:            "win-a",
	BootstrapKubeconfig: []byte("apiVersion: v1\nusers: [{name: x, user: {token: " + token + "}}]\n"),
}

func TestCallBringsRequestAndAnswer(t *testing.T) {
	t.Parallel()
	for _, shell := range []sim.Shell{sim.ShellCmd, sim.ShellPowerShell} {
		t.Run(string(shell), func(t *testing.T) {
			t.Parallel()
			r := newRig(t, func(o *sim.Options) { o.Shell = shell })
			r.does(func(_ context.Context, c *call) int {
				request := c.take(t)
				if c.Verb != "prepare" || request != `{"hostname":"win-ä"}` {
					t.Errorf("%s is called with the request %s", c.Verb, request)
				}
				// The output of a successful call is ignored.
				_, _ = io.WriteString(c.Stdout, strings.Repeat("chatter ", 100_000))
				_, _ = io.WriteString(c.Stderr, strings.Repeat("chatter ", 100_000))
				c.answer(t, `{"result":{"rebooting":true,"bootID":"7"}}`)
				return 0
			})
			conn := r.uploaded(t)
			var answer contract.Answer[contract.PrepareAnswer]
			if err := callVerb(t.Context(), conn, contract.VerbPrepare, contract.PrepareRequest{Hostname: "win-ä"},
				&answer); err != nil {
				t.Fatal(err)
			}
			want := contract.Answer[contract.PrepareAnswer]{Result: contract.PrepareAnswer{Rebooting: true,
				BootID: "7"}}
			if diff := cmp.Diff(want, answer); diff != "" {
				t.Errorf("the answer is different:\n%s", diff)
			}
			if got := r.rpcDir(t); !slices.Equal(got, []string{contract.UploadedName(r.daemon.Digest)}) {
				t.Errorf("the RPC directory has %v", got)
			}
		})
	}
}

// This is a whole join: four calls, the upload and one stream.
func TestManyCallsTakeOneConnectionAndOneSFTPSession(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.succeeds(t)
	conn := r.uploaded(t)
	for _, verb := range []contract.Verb{contract.VerbPreflight, contract.VerbReceive, contract.VerbBootstrap,
		contract.VerbHandover} {
		if err := callVerb(t.Context(), conn, verb, struct{}{}, new(contract.Answer[struct{}])); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Send(t.Context(), "payload.tar.zst", strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	want := sshd.Counters{Connections: 1, Authenticated: 1, SFTPSessions: 1, Commands: 4}
	if diff := cmp.Diff(want, counted(r)); diff != "" {
		t.Errorf("the counters are different:\n%s", diff)
	}
}

func TestCallGivesTheVerbsOwnProblem(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.does(func(_ context.Context, c *call) int {
		c.take(t)
		c.answer(
			t, `{"problem":{"reason":"DiskFull","detail":"drive C: has\n\u0007 no room"},"result":{"facts":{"hostname":"a"},"problems":[{"reason":"Made Up!","detail":"x"}]}}`)
		return 0
	})
	var answer contract.Answer[contract.PreflightAnswer]
	if err := callVerb(t.Context(), r.uploaded(t), contract.VerbPreflight, contract.PreflightRequest{},
		&answer); err != nil {
		t.Fatal(err)
	}
	if answer.Problem == nil || answer.Problem.Reason != contract.ReasonDiskFull ||
		answer.Problem.Detail != "drive C: has no room" || answer.Result.Facts.Hostname != "a" {
		t.Errorf("answered %+v", answer)
	}
	if got := answer.Result.Problems[0]; got.Reason != contract.ReasonDaemonCallFailed || got.Detail != "Made Up!: x" {
		t.Errorf("an unknown reason became %+v", got)
	}
}

func TestCallSaysWhyThereIsNoAnswer(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		run  func(ctx context.Context, c *call) int
		says string
	}{
		"an exit code": {func(_ context.Context, c *call) int {
			_, _ = io.WriteString(c.Stderr, "\x1b[31mblocked\r\nby group policy\x00")
			return 5
		}, "exit code 5: [31mblocked by group policy"},
		"no answer": {func(context.Context, *call) int { return 0 }, "left no answer"},
		"an answer that is too long": {func(_ context.Context, c *call) int {
			c.answer(t, `{"result":"`+strings.Repeat("x", maxAnswer)+`"}`)
			return 0
		}, "longer"},
		"an answer that is no JSON": {func(_ context.Context, c *call) int {
			c.answer(t, "MZ\x90\x00")
			return 0
		}, "reading the answer"},
		"an answer with something behind it": {func(_ context.Context, c *call) int {
			c.answer(t, `{"result":{}} {}`)
			return 0
		}, "unexpected data"},
		"an answer with fields that we don't know": {func(_ context.Context, c *call) int {
			c.answer(t, `{"result":{},"evil":1}`)
			return 0
		}, "unknown field"},
		"an answer without a result": {func(_ context.Context, c *call) int {
			c.answer(t, `{}`)
			return 0
		}, "neither"},
		"an answer with a result of another kind": {func(_ context.Context, c *call) int {
			c.answer(t, `{"result":[]}`)
			return 0
		}, "reading the answer"},
		"a long complaint": {func(_ context.Context, c *call) int {
			_, _ = io.WriteString(c.Stderr, strings.Repeat("many words ", 100_000)+"the end")
			return 1
		}, "the end"},
		"a complaint that quotes the request": {func(_ context.Context, c *call) int {
			_, _ = io.WriteString(c.Stderr, "can't use "+c.take(t)+" with token "+token+" sorry")
			return 1
		}, "sorry"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.does(c.run)
			conn := r.uploaded(t)
			answer := contract.Answer[contract.PrepareAnswer]{Result: contract.PrepareAnswer{BootID: "as it was"}}
			err := callVerb(t.Context(), conn, contract.VerbBootstrap, secretive, &answer)
			wantReason(t, err, contract.ReasonDaemonCallFailed, token, token[40:], "BootstrapKubeconfig",
				"YXBpVmVyc2lvbjog")
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v lacks %q", err, c.says)
			}
			if err != nil && len(err.Error()) > 1000 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			if answer.Result.BootID != "as it was" || answer.Problem != nil {
				t.Errorf("the answer was changed: %+v", answer)
			}
			// The request was deleted, because the daemon may never have read it. The connection can still be used.
			if got := r.rpcDir(t); !slices.Equal(got, []string{contract.UploadedName(r.daemon.Digest)}) {
				t.Errorf("the RPC directory has %v", got)
			}
			if conn.Err() != nil {
				t.Errorf("the connection was lost: %v", conn.Err())
			}
		})
	}
}

func TestCallOfADaemonThatDoesNotStart(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	conn := r.uploaded(t)
	if err := r.machine.Host().Files.Remove(r.machine.Home() + `\.wmco\` +
		contract.UploadedName(r.daemon.Digest)); err != nil {
		t.Fatal(err)
	}
	err := callVerb(t.Context(), conn, contract.VerbPreflight, struct{}{}, new(contract.Answer[int]))
	wantReason(t, err, contract.ReasonDaemonCallFailed)
}

func TestCallNeedsAUploadedDaemonAndAProperRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	if err := callVerb(t.Context(), r.dial(t), contract.VerbPreflight, struct{}{},
		new(contract.Answer[int])); err == nil {
		t.Error("a daemon was called without an upload")
	}
	conn := r.uploaded(t)
	if err := callVerb(t.Context(), conn, contract.VerbPreflight, map[string]any{"x": func() {}},
		new(contract.Answer[int])); err == nil {
		t.Error("a request that can't be encoded was sent")
	}
}

// hangs is a daemon that never ends, and does not delete the request.
func hangs(ctx context.Context, _ *call) int {
	<-ctx.Done()
	return 1
}

func TestCallThatHangsEndsByTimeAndLeavesNoRequest(t *testing.T) {
	t.Parallel()
	cases := map[string]func(r *rig){
		"the daemon hangs":       func(r *rig) { r.does(hangs) },
		"the session never ends": func(r *rig) { r.Change(func(s *sshd.Settings) { s.Faults.HangExec = true }) },
	}
	for name, prepare := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			prepare(r)
			conn := r.uploaded(t, func(o *Options) {
				o.CallTimeout = func(verb contract.Verb) time.Duration {
					if verb == contract.VerbBootstrap {
						return time.Second
					}
					return time.Minute
				}
			})
			err := callVerb(t.Context(), conn, contract.VerbBootstrap, secretive, new(contract.Answer[int]))
			wantReason(t, err, contract.ReasonDaemonCallFailed, token)
			if !strings.Contains(err.Error(), "no answer within 1s") {
				t.Errorf("%v does not say that the time was over", err)
			}
			if got := r.rpcDir(t); !slices.Equal(got, []string{contract.UploadedName(r.daemon.Digest)}) {
				t.Errorf("the RPC directory has %v", got)
			}
			// A timeout of a command must end only the command, not the connection.
			r.Change(func(s *sshd.Settings) { s.Faults = sshd.Faults{} })
			r.does(func(_ context.Context, c *call) int { c.answer(t, `{"result":1}`); return 0 })
			if err = callVerb(t.Context(), conn, contract.VerbPreflight, struct{}{},
				new(contract.Answer[int])); err != nil {
				t.Errorf("the next call returns %v", err)
			}
		})
	}
}

func TestCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	started := make(chan struct{})
	r.does(func(ctx context.Context, c *call) int { close(started); return hangs(ctx, c) })
	conn := r.uploaded(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- callVerb(ctx, conn, contract.VerbBootstrap, secretive, new(contract.Answer[int])) }()
	<-started
	cancel()
	err := <-done
	if _, is := contract.AsProblem(err); is || !errors.Is(err, context.Canceled) {
		t.Errorf("returned %v, want the cancellation without a problem of the host", err)
	}
	if got := r.rpcDir(t); !slices.Equal(got, []string{contract.UploadedName(r.daemon.Digest)}) {
		t.Errorf("the RPC directory has %v", got)
	}
}

// rebooting and silent are test cases. In rebooting, the host shuts down. In silent, the host stops responding, so
// only a timeout ends the call.
const rebooting, silent = "the host reboots", "the host falls silent"

func TestCallEndsWhenTheConnectionDoes(t *testing.T) {
	t.Parallel()
	cases := map[string]func(tb testing.TB, r *rig, c io.Closer){
		"the network cuts it": func(_ testing.TB, r *rig, _ io.Closer) { r.Cut() },
		rebooting:             reboot,
		"its owner closes it": shut,
		silent:                func(_ testing.TB, r *rig, _ io.Closer) { r.freeze() },
	}
	for name, end := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			started := make(chan struct{})
			r.does(func(ctx context.Context, c *call) int { close(started); return hangs(ctx, c) })
			now := clocktesting.NewFakeClock(time.Now())
			conn := r.uploaded(t, func(o *Options) { o.Clock = now })
			done := make(chan error)
			go func() {
				done <- callVerb(t.Context(), conn, contract.VerbBootstrap, secretive, new(contract.Answer[int]))
			}()
			<-started
			end(t, r, conn)
			if name == silent {
				untilGone(t, conn, now)
			}
			err := <-done
			if problem, is := contract.AsProblem(err); name == rebooting && is &&
				problem.Reason == contract.ReasonDaemonCallFailed {
				// A host that shuts down kills the command first, and its SSH server a moment later. In between it
				// may report the killed command. The connection still ends.
				wantReason(t, err, contract.ReasonDaemonCallFailed, token)
			} else {
				wantReason(t, err, contract.ReasonConnectionLost, token)
			}
			eventually(t, "the connection to end", func() bool { return conn.Err() != nil })
			wantReason(t, conn.Err(), contract.ReasonConnectionLost)
		})
	}
}

// deaf is a connection that never answers a request for a channel, not even when the connection ends. The SSH library
// does the same if the connection ends while it sends a request.
type deaf struct {
	ssh.Conn
	asked, over chan struct{}
}

// OpenChannel implements ssh.Conn.
func (d deaf) OpenChannel(string, []byte) (ssh.Channel, <-chan *ssh.Request, error) {
	close(d.asked)
	<-d.over
	return nil, nil, errors.New("the test is over")
}

func TestAConnectionThatEndsWhileAChannelIsOpenedIsLeft(t *testing.T) {
	t.Parallel()
	for name, does := range map[string]func(ctx context.Context, c host.Conn) error{
		"for SFTP": func(ctx context.Context, c host.Conn) error {
			_, err := c.Send(ctx, "x", strings.NewReader("x"))
			return err
		},
		"for a command": func(ctx context.Context, c host.Conn) error {
			return callVerb(ctx, c, contract.VerbPreflight, struct{}{}, new(contract.Answer[int]))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			still := func(o *Options) { o.Clock = clocktesting.NewFakeClock(time.Now()) }
			opened := r.dial(t, still)
			if name == "for a command" {
				opened = r.uploaded(t, still)
			}
			c, ok := opened.(*conn)
			if !ok {
				t.Fatalf("the connection is a %T", opened)
			}
			d := deaf{Conn: c.client.Conn, asked: make(chan struct{}), over: make(chan struct{})}
			t.Cleanup(func() { close(d.over) })
			c.mu.Lock()
			c.client = &ssh.Client{Conn: newChannels(d)}
			c.mu.Unlock()
			go func() {
				<-d.asked
				r.Cut()
			}()
			wantReason(t, ends(t, c, func() error { return does(t.Context(), c) }), contract.ReasonConnectionLost)
		})
	}
}

func shut(tb testing.TB, _ *rig, c io.Closer) {
	tb.Helper()
	if err := c.Close(); err != nil {
		tb.Error(err)
	}
}

func reboot(tb testing.TB, r *rig, _ io.Closer) {
	tb.Helper()
	if err := r.machine.Host().System.Reboot(tb.Context(), "a test"); err != nil {
		tb.Error(err)
	}
}

// A host that works for a long time without output answers keepalives, so it is not dead.
func TestKeepaliveLeavesALongCallAlone(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := clocktesting.NewFakeClock(time.Now())
	var heard atomic.Pointer[wire]
	r.does(func(_ context.Context, c *call) int {
		before := r.Counters().BytesOut
		for quiet := 0; quiet < 2*missedKeepalives || r.Counters().BytesOut <= before+100; quiet++ {
			now.Step(keepaliveInterval)
			eventually(t, "a sign of life", func() bool { return heard.Load().silence() == 0 })
		}
		c.answer(t, `{"result":1}`)
		return 0
	})
	uploaded := r.uploaded(t, func(o *Options) { o.Clock = now })
	c, ok := uploaded.(*conn)
	if !ok {
		t.Fatalf("the connection is a %T", uploaded)
	}
	heard.Store(c.wire)
	if err := callVerb(t.Context(), c, contract.VerbReceive, struct{}{}, new(contract.Answer[int])); err != nil {
		t.Error(err)
	}
}

func TestIdleConnectionNoticesADeadHost(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	now := clocktesting.NewFakeClock(time.Now())
	conn := r.uploaded(t, func(o *Options) { o.Clock = now })
	r.freeze()
	untilGone(t, conn, now)
	wantReason(t, conn.Err(), contract.ReasonConnectionLost)
}

// untilGone advances the clock for a silent host until the operator closes the connection.
func untilGone(t *testing.T, c host.Conn, now *clocktesting.FakeClock) {
	t.Helper()
	eventually(t, "the end of the connection", func() bool {
		now.Step(keepaliveInterval)
		return c.Err() != nil
	})
}

func TestEveryVerbHasItsTime(t *testing.T) {
	t.Parallel()
	for _, verb := range []contract.Verb{contract.VerbPreflight, contract.VerbPrepare, contract.VerbReceive,
		contract.VerbBootstrap, contract.VerbHandover, contract.VerbCleanup, "new"} {
		if limit := host.CallTimeout(verb); limit < time.Minute || limit > 30*time.Minute {
			t.Errorf("%s may take %s", verb, limit)
		}
	}
}

func TestA51_WhatNoHonestDaemonAnswersIsRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 500_000)
	preflight := func(fields string) string { return `{"result":{"facts":{"hostname":"a"` + fields }
	for name, test := range map[string]struct {
		verb contract.Verb
		text string
	}{
		"a name that is a path":      {contract.VerbPreflight, `{"result":{"facts":{"hostname":"..\\..\\x"}}}`},
		"a name of two lines":        {contract.VerbPreflight, preflight(`,"nodeName":"a\nb"}}}`)},
		"a long name":                {contract.VerbPreflight, `{"result":{"facts":{"hostname":"` + long + `"}}}`},
		"a long id":                  {contract.VerbPreflight, preflight(`,"machineID":"` + long + `"}}}`)},
		"a boot that clears screens": {contract.VerbPreflight, preflight(`,"bootID":"\u001b[2J"}}}`)},
		"a long product":             {contract.VerbPreflight, preflight(`,"productName":"` + long + `"}}}`)},
		"an invalid address":         {contract.VerbPreflight, preflight(`,"nodeIP":"10.0.0.1 win-b"}}}`)},
		"an address with a zone":     {contract.VerbPreflight, preflight(`,"nodeIP":"fe80::1%` + long + `"}}}`)},
		"a negative disk":            {contract.VerbPreflight, preflight(`,"diskFree":-1}}}`)},
		"a long feature":             {contract.VerbPreflight, preflight(`},"needsPrepare":["` + long + `"]}}`)},
		"an invalid digest":          {contract.VerbPreflight, preflight(`},"missing":[{"sha256":"../x","size":1}]}}`)},
		"no end of blobs": {contract.VerbPreflight, preflight(`},"missing":[` + strings.Repeat(`{"sha256":"`+
			strings.Repeat("0", 64)+`","size":1},`, 9000) + `{"sha256":"` + strings.Repeat("0", 64) + `","size":1}]}}`)},
		"another boot of two lines": {contract.VerbPrepare, `{"result":{"bootID":"a\nb"}}`},
		"a stored path":             {contract.VerbReceive, `{"result":{"stored":["../x"]}}`},
		"a long request":            {contract.VerbBootstrap, `{"result":{"nodeName":"a","daemonCSR":"` + long[:400_000] + `"}}`},
		"a Node that is a path":     {contract.VerbBootstrap, `{"result":{"nodeName":"a/b"}}`},
		"no end of files":           {contract.VerbCleanup, `{"result":{"kept":[` + strings.Repeat(`"",`, 100_000) + `""]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := answers()[test.verb](t, []byte(test.text)); err == nil || len(err.Error()) > 300 {
				t.Errorf("the call returned %.500v", err)
			}
		})
	}
}

// answers returns a function for each verb. The function decodes a host's answer as the operator does, and checks that
// the text in the answer is printable.
func answers() map[contract.Verb]func(tb testing.TB, raw []byte) error {
	return map[contract.Verb]func(tb testing.TB, raw []byte) error{
		contract.VerbPreflight: decodes(func(a contract.PreflightAnswer) []contract.Problem { return a.Problems }),
		contract.VerbPrepare:   decodes[contract.PrepareAnswer](nil),
		contract.VerbReceive:   decodes[contract.ReceiveAnswer](nil),
		contract.VerbBootstrap: decodes[contract.BootstrapAnswer](nil),
		contract.VerbHandover:  decodes[contract.HandoverAnswer](nil),
		contract.VerbCleanup:   decodes(func(a contract.CleanupAnswer) []contract.Problem { return a.Left }),
	}
}

func decodes[T any](problems func(T) []contract.Problem) func(tb testing.TB, raw []byte) error {
	return func(tb testing.TB, raw []byte) error {
		tb.Helper()
		answer, err := host.DecodeAnswer[T](raw)
		if err != nil {
			if diff := cmp.Diff(contract.Answer[T]{}, answer); diff != "" {
				tb.Errorf("refused with %v, but decoded:\n%s", err, diff)
			}
			if len(err.Error()) > 300 || strings.ContainsAny(err.Error(), "\n\x00") {
				tb.Errorf("the error has characters that can't be shown: %q", err)
			}
			return err
		}
		all := deref(answer.Problem)
		if problems != nil {
			all = append(all, problems(answer.Result)...)
		}
		for _, p := range all {
			if p.Reason.Number() == 0 || len(p.Detail) > host.MaxDetail+10 || strings.ContainsAny(p.Detail, "\r\n\x00\x1b") {
				tb.Errorf("a problem has characters that can't be shown: %+v", p)
			}
		}
		return nil
	}
}

// FuzzDecodeAnswer sends answers of a hostile host to each verb. There must be no panic, no partial answer, and no text
// that is not printable.
func FuzzDecodeAnswer(f *testing.F) {
	for verb, seeds := range map[contract.Verb][]string{
		contract.VerbPreflight: {
			`{"result":{"facts":{"hostname":"a","build":20348},"missing":[{"sha256":"00","size":1}]}}`,
			`{"problem":{"reason":"DiskFull","detail":"x"},"result":{"problems":[{"reason":"x","detail":"\u0000"}]}}`,
			`{"result":null}`, `{"result":{}}{}`,
		},
		contract.VerbPrepare:   {`{"result":{"rebooting":true,"bootID":"1"}}`},
		contract.VerbReceive:   {`{"result":{"stored":["` + strings.Repeat("0", 64) + `"],"missing":null}}`},
		contract.VerbBootstrap: {`{"result":{"nodeName":"a","daemonCSR":"LS0tLS0="}}`},
		contract.VerbHandover:  {`{"result":{"serviceRunning":true}}`},
		contract.VerbCleanup: {
			`{"result":{"removed":["C:\\k"],"left":[{"reason":"x","detail":"\u001b"}],"rebootAdvised":true}}`},
	} {
		for _, seed := range seeds {
			f.Add(string(verb), []byte(seed))
		}
	}
	all := answers()
	f.Fuzz(func(t *testing.T, verb string, raw []byte) {
		if decode, is := all[contract.Verb(verb)]; is {
			_ = decode(t, raw)
		}
	})
}

func deref(p *contract.Problem) []contract.Problem {
	if p == nil {
		return nil
	}
	return []contract.Problem{*p}
}
