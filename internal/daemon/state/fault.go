package state

import (
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Fault is something that failed while a revision was brought about, or held.
type Fault struct {
	contract.Problem
	// About names the service, file or variable that failed; empty where that is not known, and in
	// what older daemons wrote.
	About string `json:"about,omitempty"`
	// CrashLooping says that it is a service that starts and does not stay up. It takes minutes to find
	// that out again.
	CrashLooping bool `json:"crashLooping,omitempty"`
}

// IsSame says whether two faults are one: the same reason about the same thing. Their words count
// only where it is not known what they are about, since another release of the daemon may say the
// same in others.
func (f Fault) IsSame(other Fault) bool {
	if f.About == "" || other.About == "" {
		return f.Problem == other.Problem
	}
	return f.Reason == other.Reason && strings.EqualFold(f.About, other.About)
}
