package callhost

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

const uid = "0b0c7a1e"

// lab is the Secret of one host.
type lab struct {
	t *testing.T
	client.Client
}

func newLab(t *testing.T) lab {
	t.Helper()
	return lab{t, fake.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: contract.CallSecretPrefix + uid}}).Build()}
}

func (l lab) secret() *corev1.Secret {
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: "ns", Name: contract.CallSecretPrefix + uid}
	if err := l.Get(context.Background(), key, secret); err != nil {
		l.t.Fatal(err)
	}
	return secret
}

// set writes a field of the Secret, as the host does: the patch ignores the other fields.
func (l lab) set(field string, value any) {
	text, err := json.Marshal(value)
	if err != nil {
		l.t.Fatal(err)
	}
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{field: text}})
	if err != nil {
		l.t.Fatal(err)
	}
	if err = l.Patch(context.Background(), l.secret(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		l.t.Fatal(err)
	}
}

// call returns the current call, or false if there is none.
func (l lab) call() (call contract.Call, ok bool) {
	return call, json.Unmarshal(l.secret().Data[contract.CallRequestField], &call) == nil
}

// takes waits for a call.
func (l lab) takes() contract.Call {
	for {
		if call, ok := l.call(); ok {
			return call
		}
		time.Sleep(look)
	}
}

func (l lab) dial() host.Conn {
	l.t.Helper()
	l.set(contract.CallHostField, contract.CallHost{BootID: "boot-1"})
	conn, _, _, err := Calls{Client: l.Client, Namespace: "ns"}.Dial(l.t.Context(), uid, "x509 key")
	if err != nil || conn == nil {
		l.t.Fatalf("dialling: %v", err)
	}
	_, _ = conn.Upload(l.t.Context(), host.Blob{Blob: contract.Blob{Digest: "d1", Size: 7}})
	return conn
}

func problemOf(err error) contract.Reason {
	problem, _ := contract.AsProblem(err)
	if problem == nil {
		return ""
	}
	return problem.Reason
}

func TestA85_ThereIsNoConnectionBeforeTheHostHasReported(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	calls := Calls{Client: l.Client, Namespace: "ns"}
	for what, id := range map[string]string{"a host that has not reported": uid, "no Secret": "other"} {
		if conn, _, _, err := calls.Dial(t.Context(), id, ""); conn != nil || err != nil {
			t.Errorf("%s: %v %v", what, conn, err)
		}
	}
}

func TestA85_ACallIsAnswered(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		conn := l.dial()
		go func() {
			call := l.takes()
			if call.Verb != contract.VerbPreflight || call.Program.Digest != "d1" ||
				!strings.Contains(string(call.Request), `"hostname":"win"`) {
				t.Errorf("the call is %+v", call)
			}
			// The call takes longer than a host may be silent, but the host keeps reporting.
			for beat := range int64(30) {
				l.set(contract.CallHostField, contract.CallHost{Beat: beat, Call: call.ID})
				time.Sleep(contract.CallBeatSeconds * time.Second / 5)
			}
			l.set(contract.CallHostField, contract.CallHost{Call: call.ID,
				Answer: json.RawMessage(`{"result":{"running":true}}`)})
		}()
		var answer contract.Answer[contract.PreflightAnswer]
		if err := callVerb(t.Context(), conn, contract.VerbPreflight, contract.PreflightRequest{Hostname: "win"},
			&answer); err != nil || !answer.Result.Running {
			t.Errorf("%+v, %v", answer, err)
		}
		if _, found := l.call(); !found {
			t.Error("the operator has written to the Secret more than once")
		}
	})
}

func TestA85_AnAnswerToAnEarlierCallIsNoAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		conn := l.dial()
		go func() {
			l.takes()
			l.set(contract.CallHostField, contract.CallHost{Call: "earlier", Answer: json.RawMessage(`{"result":{}}`)})
		}()
		var answer contract.Answer[contract.PreflightAnswer]
		err := callVerb(t.Context(), conn, contract.VerbPreflight, contract.PreflightRequest{}, &answer)
		if problemOf(err) != contract.ReasonHostSilent {
			t.Errorf("%v", err)
		}
	})
}

func TestA85_EachFailureOfACallHasItsReason(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		host func(l lab)
		want contract.Reason
		lost bool
	}{
		"the host does not begin": {func(lab) {}, contract.ReasonHostSilent, true},
		"the host falls silent": {func(l lab) {
			l.set(contract.CallHostField, contract.CallHost{Beat: 1, Call: l.takes().ID})
		}, contract.ReasonConnectionLost, true},
		"the program gives no answer": {func(l lab) {
			l.set(contract.CallHostField, contract.CallHost{Call: l.takes().ID, Fault: "exit code 3"})
		}, contract.ReasonDaemonCallFailed, false},
		"the answer is not understood": {func(l lab) {
			l.set(contract.CallHostField, contract.CallHost{Call: l.takes().ID, Answer: json.RawMessage(`[]`)})
		}, contract.ReasonDaemonCallFailed, false},
		"the answer has a field of no answer": {func(l lab) {
			l.set(contract.CallHostField, contract.CallHost{Call: l.takes().ID,
				Answer: json.RawMessage(`{"result":{"other":1}}`)})
		}, contract.ReasonDaemonCallFailed, false},
		"the verb lasts too long": {func(l lab) {
			call := l.takes()
			for beat := range int64(100) {
				l.set(contract.CallHostField, contract.CallHost{Beat: beat, Call: call.ID})
				time.Sleep(contract.CallBeatSeconds * time.Second)
			}
		}, contract.ReasonDaemonCallFailed, false},
		"the Secret is deleted": {func(l lab) {
			l.takes()
			_ = l.Delete(context.Background(), l.secret())
		}, contract.ReasonConnectionLost, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t)
				conn := l.dial()
				go c.host(l)
				var answer contract.Answer[contract.PreflightAnswer]
				err := callVerb(t.Context(), conn, contract.VerbPreflight, contract.PreflightRequest{}, &answer)
				if problemOf(err) != c.want {
					t.Errorf("%v, want %s", err, c.want)
				}
				if (conn.Err() != nil) != c.lost {
					t.Errorf("the connection: %v", conn.Err())
				}
				time.Sleep(time.Hour) // in this test case, the host ends
			})
		})
	}
}

// A host's answer is untrusted until it is parsed, with this transport as well as with SSH.
func TestA86_TheTextOfAHostIsMadePrintable(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]contract.CallHost{
		"a problem": {Answer: json.RawMessage(`{"problem":{"reason":"x y","detail":"a\u001b[2J\nb"},"result":{}}`)},
		"a fault":   {Fault: "a\x1b[2J\nb"},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			conn := l.dial()
			go func() {
				answer.Call = l.takes().ID
				l.set(contract.CallHostField, answer)
			}()
			var got contract.Answer[contract.PreflightAnswer]
			err := callVerb(t.Context(), conn, contract.VerbPreflight, contract.PreflightRequest{}, &got)
			if got.Problem != nil {
				err = got.Problem
			}
			if err == nil || strings.ContainsAny(err.Error(), "\n\x1b") {
				t.Errorf("%s: %q", name, err)
			}
		})
	}
}

// A request may contain credentials. If the caller has given up, a host that returns later must not execute it.
// Exception: a cleanup continues.
func TestA86_ACallThatNobodyWaitsForIsWithdrawn(t *testing.T) {
	t.Parallel()
	for verb, stays := range map[contract.Verb]bool{contract.VerbBootstrap: false, contract.VerbCleanup: true} {
		synctest.Test(t, func(t *testing.T) {
			l := newLab(t)
			conn := l.dial()
			var answer contract.Answer[contract.BootstrapAnswer]
			err := callVerb(t.Context(), conn, verb, contract.BootstrapRequest{NodeName: "win"}, &answer)
			if problemOf(err) != contract.ReasonHostSilent {
				t.Errorf("%v", err)
			}
			if _, found := l.call(); found != stays {
				t.Errorf("the request of %s exists: %t", verb, found)
			}
		})
	}
}

// callVerb calls a verb, as the operator does. Without an answer, it does not change the variable.
func callVerb[T any](ctx context.Context, c host.Conn, verb contract.Verb, request any,
	answer *contract.Answer[T]) error {
	got, err := host.Call[T](ctx, c, verb, request)
	if err == nil {
		*answer = got
	}
	return err
}
