package reconcile

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// tokenPause limits the time between checks of the token, because timers stop while a host is suspended.
const tokenPause = 5 * time.Minute

// token renews the token of one service on the host, in its own goroutine, as long as the manifest uses the token. The
// token is bound to the Node's UID, so a new Node with the same name needs a new token.
type token struct {
	Options
	service contract.ServiceToken
	node    *apiclient.Watch
	// wake is signalled when work may be due. `written` is signalled when the token or problem has changed.
	wake, written chan struct{}
	wanted        atomic.Bool
	// count increases with each written token and each change of problem. problem is why the service has no token,
	// or why its token expires soon. Otherwise problem is nil.
	count   atomic.Int64
	problem atomic.Pointer[contract.Problem]
	// uid is the UID of the Node that the last token is bound to. At renewAt, the token is renewed. After lateAt, a
	// failed renewal is reported. Both are times of the host's clock.
	uid             types.UID
	renewAt, lateAt time.Time
	// pause is the pause after the latest failure. It grows with each failure in a row.
	pause time.Duration
}

func (t *token) setWanted(m contract.Manifest) {
	if t.wanted.Swap(plan.AsksFor(m, t.service.Fact)) != t.wanted.Load() {
		loop.Signal(t.wake)
	}
}

func (t *token) run(ctx context.Context) {
	t.node.Wake(t.wake)
	loop.Run(ctx, t.Clock, t.wake, t.look)
}

// look renews the token if it is due, and returns the time until the next check.
func (t *token) look(ctx context.Context) time.Duration {
	node, _ := t.node.Get()
	if node == nil || !t.wanted.Load() {
		t.say(nil)
		return tokenPause
	}
	uid := node.GetUID()
	left := t.renewAt.Sub(t.Host.System.Now())
	if uid == t.uid && 0 < left && left <= apiclient.TokenLife && t.there() {
		t.say(nil)
		return min(left, tokenPause)
	}
	log := logr.FromContextOrDiscard(ctx)
	life, err := t.renew(ctx, uid)
	if err != nil {
		if ctx.Err() == nil {
			log.Info("there is no new token for a service", "service", t.service.Service, "detail", err.Error())
			t.complain(uid, err)
		}
		t.pause = loop.Grow(t.pause, 2, t.Intervals.Failing, t.Intervals.FailingLimit)
		loop.Wait(ctx, t.Clock, nil, loop.Jitter(t.pause)) // without t.wake, because the Node changes all the time
		return 0
	}
	log.V(1).Info("wrote a token for a service", "service", t.service.Service, "life", life.String())
	t.uid, t.renewAt, t.pause = uid, t.Host.System.Now().Add(life/2), 0
	t.lateAt = t.renewAt.Add(life / 4)
	t.problem.Store(nil)
	t.count.Add(1)
	loop.Signal(t.written)
	return min(life/2, tokenPause)
}

// complain reports a failed renewal if the service has no token of this Node or if its token expires soon. A newly
// started daemon does not know an existing token's age, and assumes that half of the token's lifetime remains.
func (t *token) complain(uid types.UID, err error) {
	reason := contract.ReasonTokenPending
	if (uid == t.uid || t.uid == "") && t.there() {
		reason = contract.ReasonTokenExpiring
	}
	early := reason == contract.ReasonTokenExpiring && t.Host.System.Now().Before(t.lateAt)
	if early || errors.Is(err, errUnanswered) { // the problem can't be written to the Node either
		return
	}
	t.say(contract.NewProblem(reason, "there is no new token for service %s: %v", t.service.Service, err))
}

var errUnanswered = errors.New("it does not answer")

// say stores the problem, or nil, and wakes the loop if the problem has changed.
func (t *token) say(problem *contract.Problem) {
	if isNews(t.problem.Swap(problem), problem) {
		t.count.Add(1)
		loop.Signal(t.written)
	}
}

// isNews reports whether a problem differs from the previous one. nil means no problem.
func isNews(before, now *contract.Problem) bool {
	return before != now && (before == nil || now == nil || *before != *now)
}

// `there` reports whether the token's files still exist. If this can't be checked, the result is true.
func (t *token) there() bool {
	token, err := winos.Exists(t.Host.Files, t.service.Token)
	kubeconfig, other := winos.Exists(t.Host.Files, t.service.Kubeconfig)
	return errors.Join(err, other) != nil || token && kubeconfig
}

func (t *token) renew(ctx context.Context, uid types.UID) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	text, life, err := apiclient.RequestToken(ctx, t.Client, t.Namespace, t.service.Account, t.NodeName, uid)
	var unanswered net.Error
	if errors.As(err, &unanswered) {
		return 0, fmt.Errorf("%w: %w", errUnanswered, err)
	}
	if err != nil {
		return 0, err
	}
	return life, apiclient.WriteToken(t.Host.Files, t.Kubeconfig, t.service, text)
}

type tokens []*token

func newTokens(o Options, written chan struct{}) (all tokens) {
	for _, t := range contract.ServiceTokens() {
		all = append(all, &token{Options: o, service: t, wake: make(chan struct{}, 1), written: written,
			lateAt: o.Host.System.Now().Add(apiclient.TokenLife / 4)})
	}
	return all
}

func (all tokens) setWanted(m contract.Manifest) {
	for _, t := range all {
		t.setWanted(m)
	}
}

func (all tokens) problems() (problems []*contract.Problem) {
	for _, t := range all {
		if p := t.problem.Load(); p != nil && t.wanted.Load() {
			problems = append(problems, p)
		}
	}
	return problems
}

// count changes with each written token, and with each change of a problem.
func (all tokens) count() (n int64) {
	for _, t := range all {
		n += t.count.Load()
	}
	return n
}
