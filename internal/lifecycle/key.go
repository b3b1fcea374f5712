package lifecycle

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// keyAccepted notes that a key let us in.
func keyAccepted(instance *v1alpha1.WindowsInstance, key Key) {
	instance.Status.PublicKeyHash, instance.Status.KeyTrial = key.Hash, nil
}

// keyFailed notes that a host was not entered with a key. What another key went through is forgotten: only the present one counts.
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
