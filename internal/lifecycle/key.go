package lifecycle

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// keyAccepted notes that a key let us in.
func keyAccepted(instance *v1alpha1.WindowsInstance, key Key) {
	instance.Status.PublicKeyHash, instance.Status.KeyTrial = key.Hash, nil
}

// keyFailed notes that a host was not entered with a key. What another key went through is
// forgotten: only the present one counts.
func (w *Walker) keyFailed(instance *v1alpha1.WindowsInstance, key Key, err error) {
	trial := instance.Status.KeyTrial
	if trial == nil || trial.PublicKeyHash != key.Hash {
		trial = &v1alpha1.KeyTrial{PublicKeyHash: key.Hash}
	}
	trial.Failures++
	if problem, ok := contract.AsProblem(err); ok && problem.Reason == contract.ReasonKeyRefused {
		trial.Refusals++
		if trial.RefusedSince == nil {
			now := metav1.NewTime(w.Now()).Rfc3339Copy()
			trial.RefusedSince = &now
		}
	}
	instance.Status.KeyTrial = trial
}

// HasKey waits while there is no key to let us in: a host that waits for one takes no place from
// others.
func (w *Walker) HasKey(ctx context.Context) Outcome {
	_, err := w.Keys.PrivateKey(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		return WaitEndless(keyRetry, problem.Reason, "%s", problem.Detail)
	}
	if err != nil {
		return retry(fmt.Errorf("reading the private key: %w", err))
	}
	return Done()
}

// TryKey asks a host that has joined whether it lets a key in, over a connection that is closed at
// once. What came of it is in the instance's status; it fails with the reason why not.
func (w *Walker) TryKey(ctx context.Context, instance *v1alpha1.WindowsInstance, key Key) Outcome {
	conn, err := w.Dialer.Dial(ctx, target(instance, key, ""))
	if ctx.Err() != nil {
		if err == nil {
			_ = conn.Close() // nobody waits for it
		}
		return retry(ctx.Err())
	}
	if err != nil {
		w.keyFailed(instance, key, err)
		return Fail(err)
	}
	_ = conn.Close() // it has told what it was opened for
	keyAccepted(instance, key)
	return Done()
}
