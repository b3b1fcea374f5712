package instance

import (
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// Limits of the API. The API counts characters. This package counts bytes: no text has fewer bytes than characters.
const (
	maxMessage  = 32768 // of a condition
	maxWhy      = 4096  // why a host waits, or an update failed
	maxRevision = 253
	maxBootID   = 128
	maxPhases   = 64
)

// fit shortens texts from a host or its kubelet to what the API accepts. Otherwise a host could prevent writes of its
// status. fit doesn't shorten names.
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

// cut leaves at most limit bytes of a text, and no part of a character.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}
