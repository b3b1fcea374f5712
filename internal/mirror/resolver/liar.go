package resolver

import (
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// liars remembers who gave wrong bytes for a digest. For a while it is asked for that digest when nobody else is left, so that the next attempt of containerd
// does not end as the first one did. When several had a hand in wrong bytes, each is only a suspect. Whoever gave wrong bytes for one digest is a suspect for all others of
// that repository too: what of a large layer is wrong shows at its end only, and then containerd has most of it. Suspects are asked after all others.
type liars struct{ known *memory[lie, guilt] }

type lie struct {
	at     mirror.Pull
	digest digest
}

type guilt string

const (
	innocent guilt = ""
	suspect  guilt = "suspect"
	proven   guilt = "proven"
)

// lieLife is shorter than kubelet's longest pause between two attempts to pull (five minutes), so that a repaired mirror is asked by the next of them.
const (
	lieLife = 4 * time.Minute
	lieRoom = 1024
)

func newLiars(now func() time.Time) *liars { return &liars{known: newMemory[lie, guilt](lieRoom, now)} }

// blame notes that these places together gave wrong bytes.
func (l *liars) blame(d digest, together ...mirror.Pull) {
	found := proven
	if len(together) > 1 {
		found = suspect
	}
	for _, at := range together {
		at.Source = false
		l.known.change(lie{at, d}, lieLife, func(before guilt) guilt {
			if before == proven {
				return proven
			}
			return found
		})
		l.known.put(lie{at, ""}, suspect, lieLife)
	}
}

// guilt is what is known about a place. Without a digest it is only whether it is a suspect.
func (l *liars) guilt(at mirror.Pull, d digest) guilt {
	at.Source = false
	if found, ok := l.known.get(lie{at, d}); ok {
		return found
	}
	found, _ := l.known.get(lie{at, ""})
	return found
}
