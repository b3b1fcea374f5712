package instance

import (
	"cmp"
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// trials is the number of concurrent tries of a new key. A handshake takes about a second, and no other work
	// waits for the result.
	trials = 16
	// trialRetry is a safety net for a host that waits for its try. Normally an event ends the wait.
	trialRetry = time.Minute
)

// tryKey checks whether the host accepts the present private key, if it accepted another key last, or if the user
// has changed the connection settings: see observe. If the host does not accept the key, tryKey tries again after
// growing pauses. wait is the time until the next try, or 0 if no try is needed.
func (c *reconciliation) tryKey(ctx context.Context) (wait time.Duration) {
	key, err := c.parts.Keys.PrivateKey(ctx)
	if err != nil || c.instance.Spec.ByItself != nil {
		return 0 // there is no usable key; a new key is an event
	}
	status := &c.instance.Status
	if status.PublicKeyHash == key.Hash && (status.KeyTrial == nil || status.KeyTrial.PublicKeyHash != key.Hash) {
		status.KeyTrial = nil
		c.status.condition(v1alpha1.ConditionKeyAuthorized, metav1.ConditionTrue, keyAccepted,
			"the present private key was accepted")
		return 0
	}
	if trial := status.KeyTrial; trial != nil && trial.PublicKeyHash == key.Hash && trial.NextTime != nil {
		if wait = trial.NextTime.Sub(c.now()); wait > 0 {
			return wait
		}
	}
	if c.isQueued = !c.trials.Acquire(c.instance.UID); c.isQueued {
		return trialRetry
	}
	defer c.trials.Release(c.instance.UID)
	work, ended := c.interruptible(ctx, c.life)
	defer ended()
	outcome := c.parts.Access.TryKey(work, c.instance, key)
	if outcome.IsDone() {
		logf.FromContext(ctx).Info("host accepts the new key", "publicKeyHash", key.Hash)
		c.status.condition(v1alpha1.ConditionKeyAuthorized, metav1.ConditionTrue, keyAccepted,
			"the present private key was accepted")
		return 0
	}
	if work.Err() != nil || status.KeyTrial == nil {
		return outcome.After // the operator stops, the instance is removed, or the host was not asked
	}
	return c.notLetIn(ctx, outcome.Problem)
}

// keyRequested reports whether the key must be tried now: the host did not accept it, and a user requests a new
// try.
func keyRequested(instance *v1alpha1.WindowsInstance) bool {
	trial := instance.Status.KeyTrial
	requested, err := time.Parse(time.RFC3339, instance.Annotations[contract.TryKeyAnnotation])
	return err == nil && trial != nil && trial.LastTime != nil && trial.LastTime.Time.Before(requested)
}

// keyAccepted is the reason of a KeyAuthorized condition that is True.
const keyAccepted contract.Reason = "KeyAccepted"

// notLetIn records that the host did not accept the key, and plans the next try.
func (c *reconciliation) notLetIn(ctx context.Context, problem *contract.Problem) time.Duration {
	trial := c.instance.Status.KeyTrial
	wait := policy.KeyBackoff(trial.Failures, c.jitter())
	next := journey.Seconds(c.now().Add(wait))
	trial.NextTime = &next
	state, reason := metav1.ConditionUnknown, problem.Reason
	if trial.Refusals > 0 {
		state, reason = metav1.ConditionFalse, contract.ReasonKeyNotAuthorized
	}
	if trial.PublicKeyHash == c.instance.Status.PublicKeyHash { // the key is not new, but the connection settings are
		reason = problem.Reason
		field := map[contract.Reason]string{contract.ReasonKeyRefused: "spec.username",
			contract.ReasonHostKeyMismatch: "spec.hostKey"}[reason]
		problem = contract.NewProblem(reason, "%s may be wrong: %s", cmp.Or(field, "spec.address or spec.port"),
			problem.Detail)
	}
	c.status.condition(v1alpha1.ConditionKeyAuthorized, state, reason, problem.Detail+". "+reason.Fix())
	logf.FromContext(ctx).Info("host does not accept the new key", "reason", problem.Reason, "detail", problem.Detail,
		"failures", trial.Failures, "retryIn", wait.String())
	return wait
}
