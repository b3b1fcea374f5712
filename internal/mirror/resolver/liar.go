package resolver

import (
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// liars remembers who gave wrong bytes for a digest. It is not asked for that digest for a while, so that the next attempt of containerd does not end as the
// first one did.
type liars struct{ known *memory[lie, struct{}] }

type lie struct {
	at     mirror.Pull
	digest digest
}

// lieLife is shorter than kubelet's longest pause between two attempts to pull (five minutes), so that a repaired mirror is asked by the next of them.
const (
	lieLife = 4 * time.Minute
	lieRoom = 1024
)

func newLiars(now func() time.Time) *liars {
	return &liars{known: newMemory[lie, struct{}](lieRoom, now)}
}

func (l *liars) blame(at mirror.Pull, d digest) {
	at.Source = false
	l.known.put(lie{at, d}, struct{}{}, lieLife)
}

func (l *liars) lied(at mirror.Pull, d digest) bool {
	at.Source = false
	_, ok := l.known.get(lie{at, d})
	return ok && d != ""
}
