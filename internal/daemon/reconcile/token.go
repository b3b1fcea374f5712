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
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// tokenPause lies at most between two looks at the token: timers stand still while a host is
// suspended.
const tokenPause = 5 * time.Minute

// token keeps the token of one service on the host, in a goroutine of its own, as long as the manifest
// names it. It is bound to the Node, so another Node of this name needs another.
type token struct {
	Options
	service contract.ServiceToken
	node    *apiclient.Watch
	// wake is signalled when there may be something to do, written when a token was written.
	wake, written chan struct{}
	wanted        atomic.Bool
	// count is of tokens that were written, and of what problem was. That is why there is no token, or none that lives
	// for much longer; nil otherwise.
	count   atomic.Int64
	problem atomic.Pointer[contract.Problem]
	// uid of the Node of the last token, which is renewed at renewAt, and has little left to live at lateAt, by the
	// host's clock.
	uid             types.UID
	renewAt, lateAt time.Time
	// failedFor is the Node for which the last attempt failed; the next one is not before retryAt.
	failedFor types.UID
	retryAt   time.Time
	pause     time.Duration
}

// setWanted takes over whether a manifest names the token.
func (t *token) setWanted(m contract.Manifest) {
	if t.wanted.Swap(plan.AsksFor(m, t.service.Fact)) != t.wanted.Load() {
		signal(t.wake)
	}
}

func signal(channel chan<- struct{}) {
	select {
	case channel <- struct{}{}:
	default: // a signal is waiting already
	}
}

func (t *token) run(ctx context.Context) {
	t.node.Wake(t.wake)
	for ctx.Err() == nil {
		timer := t.Clock.NewTimer(t.look(ctx))
		select {
		case <-ctx.Done():
		case <-t.wake:
		case <-timer.C():
		}
		timer.Stop()
	}
}

// look renews the token if it is time, and answers when to look again if nothing is seen before.
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
	if left = t.retryAt.Sub(t.Clock.Now()); uid == t.failedFor && left > 0 {
		return left
	}
	log := logr.FromContextOrDiscard(ctx)
	life, err := t.renew(ctx, uid)
	if err != nil {
		if ctx.Err() == nil {
			log.Info("there is no new token for a service", "service", t.service.Service, "detail", err.Error())
			t.complain(uid, err)
		}
		if uid != t.failedFor {
			t.pause = 0
		}
		t.pause = grow(t.pause, 2, t.Intervals.Failing, t.Intervals.FailingLimit)
		t.failedFor, t.retryAt = uid, t.Clock.Now().Add(apiclient.Jitter(t.pause))
		return t.pause
	}
	log.V(1).Info("wrote a token for a service", "service", t.service.Service, "life", life.String())
	t.uid, t.renewAt, t.failedFor, t.pause = uid, t.Host.System.Now().Add(life/2), "", 0
	t.lateAt = t.renewAt.Add(life / 4)
	t.problem.Store(nil)
	t.count.Add(1)
	signal(t.written)
	return min(life/2, tokenPause)
}

// complain has the loop say why the token could not be renewed, where the service has none of this Node or soon will. A
// daemon that starts does not know how old the one is that is there: most likely it has half of its life left.
func (t *token) complain(uid types.UID, err error) {
	reason := contract.ReasonTokenPending
	if (uid == t.uid || t.uid == "") && t.there() {
		reason = contract.ReasonTokenExpiring
	}
	early := reason == contract.ReasonTokenExpiring && t.Host.System.Now().Before(t.lateAt)
	if early || errors.Is(err, errUnanswered) { // it can't be told, and the token comes when the API server answers
		return
	}
	t.say(contract.NewProblem(reason, "there is no new token for service %s: %v", t.service.Service, err))
}

// errUnanswered means that the API server did not answer.
var errUnanswered = errors.New("it does not answer")

// say has the loop know the problem, or that there is none.
func (t *token) say(problem *contract.Problem) {
	if isNews(t.problem.Swap(problem), problem) {
		t.count.Add(1)
		signal(t.written)
	}
}

// isNews says whether a problem is another one than before; nil is none.
func isNews(before, now *contract.Problem) bool {
	return before != now && (before == nil || now == nil || *before != *now)
}

// there says whether what was written is still there.
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

// tokens are those of all services that a manifest can name.
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

// problems are why services have no token, or soon will have none.
func (all tokens) problems() (problems []*contract.Problem) {
	for _, t := range all {
		if p := t.problem.Load(); p != nil && t.wanted.Load() {
			problems = append(problems, p)
		}
	}
	return problems
}

// count changes with each token that is written, and with the problems.
func (all tokens) count() (n int64) {
	for _, t := range all {
		n += t.count.Load()
	}
	return n
}
