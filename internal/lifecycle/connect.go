package lifecycle

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

const (
	// slotRetry is how long a queued host waits when it is not woken before. Being woken is the rule.
	slotRetry = time.Minute
	// keyRetry is how long hosts wait for a usable private key; the secret's watch ends the wait earlier.
	keyRetry = time.Minute
	// rebootRetry is how often a rebooting host is tried, and rebootLimit how long it may take. Servers with much memory take 10 minutes.
	rebootRetry = 10 * time.Second
	rebootLimit = 20 * time.Minute
)

// connect opens the connection, pins the host key, and takes a slot. Dialling needs no slot, so a dead host takes none.
func (w *Walker) connect(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	if !visit.Connected() {
		if outcome := w.dial(ctx, instance, visit); !outcome.IsDone() {
			return outcome
		}
	}
	instance.Status.HostKey = strings.TrimSpace(visit.conn.HostKey())
	if !w.Slots.Acquire(instance.UID) {
		return Wait(slotRetry, contract.ReasonWaitingForSlot, "connected; waiting for a join slot")
	}
	return Done()
}

func (w *Walker) dial(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	key, err := w.Keys.PrivateKey(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		return Wait(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	if err != nil {
		return retry(fmt.Errorf("reading the private key: %w", err))
	}
	visit.End()
	conn, err := w.Dialer.Dial(ctx, host.Target{
		Address: instance.Spec.Address, Port: int(instance.Spec.Port), User: instance.Spec.Username,
		PrivateKey: key.PEM, HostKey: ExpectedHostKey(instance),
	})
	if err != nil {
		return w.dialFailed(instance, err)
	}
	visit.conn, visit.key = conn, key
	return Done()
}

// dialFailed tells a host that is rebooting because of us from one that is gone.
func (w *Walker) dialFailed(instance *v1alpha1.WindowsInstance, err error) Outcome {
	problem, ok := contract.AsProblem(err)
	if !ok || problem.Reason != contract.ReasonUnreachable && problem.Reason != contract.ReasonNotSSH && problem.Reason != contract.ReasonConnectionLost {
		return Fail(err)
	}
	since := instance.Status.RebootTime
	switch {
	case since == nil:
		return Fail(err)
	case w.Now().Sub(since.Time) > rebootLimit:
		return Fail(contract.NewProblem(contract.ReasonRebootNotProven, "rebooted at %s and not back since: %s", since.UTC().Format(time.RFC3339), problem.Detail))
	default:
		w.Slots.Release(instance.UID) // it queues again when it is back
		return Wait(rebootRetry, contract.ReasonRebooting, "rebooting since %s", since.UTC().Format(time.RFC3339))
	}
}

// ExpectedHostKey is the key that a host must show: the user's word, else the pin of the first contact, else empty.
func ExpectedHostKey(instance *v1alpha1.WindowsInstance) string {
	if instance.Spec.HostKey != "" {
		return instance.Spec.HostKey
	}
	return instance.Status.HostKey
}
