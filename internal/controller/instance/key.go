package instance

import (
	"cmp"
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// trials is the maximum number of hosts on which a new key is tried at the same time. A try takes about a second.
	trials = 16
	// trialRetry is a safety net for a host that is in the queue for a try. Normally, an event ends the wait.
	trialRetry = time.Minute
)

// keyTrial is the last try of a private key on a host. It is only in memory, so a new operator tries the key at once.
type keyTrial struct {
	hash     string
	failures int32
	next     time.Time
}

// tryKey logs in to a host to check whether it accepts the current private key. It does this if the host last accepted
// a different key, or if the user has changed the connection settings (see observe). The pauses after failed tries
// grow. `wait` is the time until the next try, or 0 if none is needed.
func (c *reconciliation) tryKey(ctx context.Context) (wait time.Duration) {
	key, err := c.parts.Keys.PrivateKey(ctx)
	if err != nil || c.instance.Spec.ByItself != nil {
		return 0 // there is no usable key, or the host needs none; a new key triggers a reconcile
	}
	status := &c.instance.Status
	if c.memory.keyTrial.hash != key.Hash {
		c.memory.keyTrial = keyTrial{hash: key.Hash}
	}
	if status.PublicKeyHash == key.Hash && !c.hasNewSettings() {
		status.KeyRefusal = nil
		c.keyAccepted()
		return 0
	}
	if wait = c.memory.keyTrial.next.Sub(c.now()); wait > 0 {
		return wait
	}
	if c.isQueued = !c.trials.Acquire(c.memory.key); c.isQueued {
		return trialRetry
	}
	defer c.trials.Release(c.memory.key)
	work, ended := c.interruptible(ctx, c.memory)
	defer ended()
	outcome := c.parts.Access.TryKey(work, c.instance, key)
	switch {
	case outcome.IsDone():
		logf.FromContext(ctx).Info("host accepts the new key", "publicKeyHash", key.Hash)
		c.keyAccepted()
		return 0
	case outcome.IsWaiting():
		return outcome.After // the operator stops, or the instance is being removed
	}
	return c.notLetIn(ctx, key.Hash, outcome.Problem)
}

// hasNewSettings reports whether a login must still prove the user's new connection settings. If the reason is
// KeyNotAuthorized, the host refused only the key, so the settings count as correct.
func (c *reconciliation) hasNewSettings() bool {
	condition := meta.FindStatusCondition(c.instance.Status.Conditions, v1alpha1.ConditionKeyAuthorized)
	return condition != nil && condition.Status != metav1.ConditionTrue &&
		condition.Reason != string(contract.ReasonKeyNotAuthorized)
}

func (c *reconciliation) keyAccepted() {
	c.status.condition(v1alpha1.ConditionKeyAuthorized, metav1.ConditionTrue, keyAccepted,
		"the current private key was accepted")
}

// Reasons of the condition KeyAuthorized.
const (
	keyAccepted contract.Reason = "KeyAccepted"
	keyUntried  contract.Reason = "SpecChanged"
)

func (c *reconciliation) notLetIn(ctx context.Context, hash string, problem *contract.Problem) time.Duration {
	trial, status := &c.memory.keyTrial, &c.instance.Status
	trial.failures++
	wait := policy.KeyBackoff(trial.failures, c.jitter())
	trial.next = c.now().Add(wait)
	state, reason := metav1.ConditionUnknown, problem.Reason
	switch {
	case status.PublicKeyHash == hash: // the host accepted this key before, so the new settings may be wrong
		if reason == contract.ReasonKeyRefused {
			state = metav1.ConditionFalse
		}
		field := map[contract.Reason]string{contract.ReasonKeyRefused: "spec.username",
			contract.ReasonHostKeyMismatch: "spec.hostKey"}[reason]
		problem = contract.NewProblem(reason, "%s may be wrong: %s", cmp.Or(field, "spec.address or spec.port"),
			problem.Detail)
	case status.KeyRefusal != nil && status.KeyRefusal.PublicKeyHash == hash:
		state, reason = metav1.ConditionFalse, contract.ReasonKeyNotAuthorized
	}
	c.status.condition(v1alpha1.ConditionKeyAuthorized, state, reason,
		contract.NewProblem(reason, "%s", problem.Detail).Explain())
	logf.FromContext(ctx).Info("host does not accept the new key", "reason", problem.Reason, "detail", problem.Detail,
		"failures", trial.failures, "retryIn", wait.String())
	return wait
}
