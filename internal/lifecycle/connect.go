package lifecycle

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/host"
)

const (
	// slotRetry is how long a queued host waits when it is not woken before. Being woken is the
	// rule.
	slotRetry = time.Minute
	// keyRetry is how long hosts wait for a usable private key; the secret's watch ends the wait
	// earlier.
	keyRetry = time.Minute
	// rebootRetry is how often a rebooting host is tried, and rebootLimit how long it may take.
	// Servers with much memory take 10 minutes.
	rebootRetry = 10 * time.Second
	rebootLimit = 20 * time.Minute
)

// connect opens the connection, pins the host key, and takes a slot. Dialling needs no slot, so a
// dead host takes none.
func (w *Walker) connect(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	if !visit.Connected() {
		if outcome := w.dial(ctx, instance, visit); !outcome.IsDone() {
			return outcome
		}
	}
	key, err := ownHostKey(ctx, instance, visit)
	if err != nil {
		return Fail(err)
	}
	instance.Status.HostKey = key
	if !w.Slots.Acquire(instance.UID) {
		return WaitEndless(slotRetry, contract.ReasonWaitingForSlot, "connected; waiting for a join slot")
	}
	return Done()
}

func (w *Walker) dial(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) Outcome {
	key, err := w.Keys.PrivateKey(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	if err != nil {
		return retry(fmt.Errorf("reading the private key: %w", err))
	}
	shared, err := w.sharedHostKey(ctx, instance)
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	if err != nil {
		return retry(fmt.Errorf("reading the host key for first contacts: %w", err))
	}
	visit.End()
	conn, err := w.Dialer.Dial(ctx, target(instance, key, shared))
	if err != nil {
		w.keyFailed(instance, key, err)
		return w.dialFailed(instance, err)
	}
	keyAccepted(instance, key)
	visit.conn, visit.key, visit.shared = conn, key, shared
	return Done()
}

// target is an instance's host and how to get in.
func target(instance *v1alpha1.WindowsInstance, key Key, shared string) host.Target {
	return host.Target{
		Address: instance.Spec.Address, Port: int(instance.Spec.Port), User: instance.Spec.Username,
		PrivateKey: key.PEM, HostKey: cmp.Or(ExpectedHostKey(instance), shared),
	}
}

// sharedHostKey is the host key that the host was made with; empty where there is none, or the user
// has named one.
func (w *Walker) sharedHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance) (string, error) {
	if w.FirstContact == nil || instance.Spec.HostKey != "" {
		return "", nil
	}
	return w.FirstContact.SharedHostKey(ctx, instance)
}

// userDataKeys is how a host key begins that user data may have brought: ours of now, which we
// know, or one of before, which nobody does any more.
const userDataKeys = "ssh-ed25519 "

// ownHostKey is the key to pin: the one that the host showed, unless others have it, too, or may.
// Then the host proves over this very connection which keys are its own. A host that has no other
// keeps the one that it showed, and is asked again the next time.
func ownHostKey(ctx context.Context, instance *v1alpha1.WindowsInstance, visit *Visit) (string, error) {
	shown := strings.TrimSpace(visit.conn.HostKey())
	machine := instance.Spec.Source != nil && instance.Spec.Source.Kind == v1alpha1.SourceMachine
	prover, ok := visit.conn.(host.Prover)
	switch {
	case !ok, instance.Spec.HostKey != "":
		return shown, nil
	case visit.shared != "" && shown == visit.shared:
	case !machine || !strings.HasPrefix(shown, userDataKeys):
		return shown, nil
	}
	proven, err := prover.ProveHostKeys(ctx)
	if err != nil {
		return "", fmt.Errorf("having the host prove its own keys: %w", err)
	}
	own := shown
	for _, key := range proven {
		switch key = strings.TrimSpace(key); {
		case key == "" || key == shown || key == visit.shared:
		case !machine || !strings.HasPrefix(key, userDataKeys):
			return key, nil
		case own == shown:
			own = key
		}
	}
	return own, nil
}

// dialFailed tells a host that is rebooting because of us from one that is gone.
func (w *Walker) dialFailed(instance *v1alpha1.WindowsInstance, err error) Outcome {
	problem, ok := contract.AsProblem(err)
	if !ok || problem.Reason != contract.ReasonUnreachable && problem.Reason != contract.ReasonNotSSH &&
		problem.Reason != contract.ReasonConnectionLost {
		return Fail(err)
	}
	since := instance.Status.RebootTime
	switch {
	case since == nil:
		return Fail(err)
	case w.Now().Sub(since.Time) > rebootLimit:
		return Fail(contract.NewProblem(contract.ReasonRebootNotProven, "rebooted at %s and not back since: %s",
			since.UTC().Format(time.RFC3339), problem.Detail))
	default:
		w.Slots.Release(instance.UID) // it queues again when it is back
		return Wait(rebootRetry, contract.ReasonRebooting, "rebooting since %s", since.UTC().Format(time.RFC3339))
	}
}

// ExpectedHostKey is the key that a host must show: the user's word, else the pin of the first
// contact, else empty.
func ExpectedHostKey(instance *v1alpha1.WindowsInstance) string {
	if instance.Spec.HostKey != "" {
		return instance.Spec.HostKey
	}
	return instance.Status.HostKey
}
