package instance

import (
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Limits of the API, in characters. This package counts bytes, which is at least as strict.
const (
	maxMessage  = 32768 // for the message of a condition
	maxWhy      = 4096  // for the reason why a host waits or why an update failed
	maxRevision = 253
	maxBootID   = 128
	maxPhases   = 64
)

// fit shortens texts from a host or its kubelet to the lengths that the API accepts. Otherwise, a host could prevent
// all writes of its status.
func fit(status *v1alpha1.WindowsInstanceStatus) {
	status.Revision, status.HeldRevision = cut(status.Revision, maxRevision), cut(status.HeldRevision, maxRevision)
	status.Phases = status.Phases[max(0, len(status.Phases)-maxPhases):]
	if a := status.Activity; a != nil {
		a.Message, a.BootID = cut(a.Message, maxWhy), cut(a.BootID, maxBootID)
	}
	if failed := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionUpdateFailed); failed != nil {
		failed.Message = cut(failed.Message, maxWhy)
	}
}

func shorten(message string) string { return cut(message, maxMessage) }

// cut returns at most the first limit bytes of a text. It never cuts a character in two.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
