package state

import (
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Fault is a failure that occurred while the daemon applied a revision, or while it kept the host in the desired state.
type Fault struct {
	contract.Problem
	// About names the failed service, file or variable. It may be empty, for example in state files of older daemons.
	About string `json:"about,omitempty"`
	// CrashLooping reports that the fault is a service that ends soon after each start. The state file records this,
	// because a new daemon needs minutes to detect the crash loop again.
	CrashLooping bool `json:"crashLooping,omitempty"`
}

// IsSame reports whether two faults have the same reason and the same object. Messages are compared only if
// the object is unknown, because another release of the daemon may use other words.
func (f Fault) IsSame(other Fault) bool {
	if f.About == "" || other.About == "" {
		return f.Problem == other.Problem
	}
	return f.Reason == other.Reason && strings.EqualFold(f.About, other.About)
}
