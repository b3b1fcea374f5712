package resolver

import (
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// mismatches remembers who gave wrong bytes for a digest. For a while it is asked for that digest
// when nobody else is left, so that the next attempt of containerd does not end as the first one
// did. When several had a hand in wrong bytes, each is only a suspect. Whoever gave wrong bytes for
// one digest is a suspect for all others of that repository too: what of a large layer is wrong
// shows at its end only, and then containerd has most of it. Suspects are asked after all others.
//
// Small contents are checked before they go out. What flows through is checked by containerd, which
// hashes all that it stores; it says nothing if that does not agree, but asks again. So whoever
// asks again for a digest that came through whole makes those who brought it doubtful: other
// mirrors go first, and this time all of it is hashed here as well, to find out who it is.
type mismatches struct {
	known   *memory[mismatch, confidence]
	brought *memory[digest, []mirror.Pull]
}

type mismatch struct {
	at     mirror.Pull
	digest digest
}

type confidence string

const (
	trusted  confidence = ""
	doubtful confidence = "doubtful"
	suspect  confidence = "suspect"
	proven   confidence = "proven"
)

// mismatchLife is shorter than kubelet's longest pause between two attempts to pull (five minutes),
// so that a repaired mirror is asked by the next of them.
const (
	mismatchLife   = 4 * time.Minute
	mismatchesKept = 1024
)

// doubtLife is longer than kubelet's longest pause.
const doubtLife = 10 * time.Minute

func newMismatches(now func() time.Time) *mismatches {
	return &mismatches{known: newMemory[mismatch, confidence](mismatchesKept, now),
		brought: newMemory[digest, []mirror.Pull](mismatchesKept, now)}
}

// passed notes who together brought what went through to its end without being hashed.
func (l *mismatches) passed(d digest, together []mirror.Pull) {
	together = slices.Clone(together)
	for i := range together {
		together[i].Source = false
	}
	l.brought.put(d, together, doubtLife)
}

// doubts says whether what a place brings for a digest is to be hashed.
func (l *mismatches) doubts(at mirror.Pull, d digest) bool {
	_, passed := l.brought.get(d)
	return passed || l.confidence(at, d) != trusted
}

// blame notes that these places together gave wrong bytes.
func (l *mismatches) blame(d digest, together ...mirror.Pull) {
	found := proven
	if len(together) > 1 {
		found = suspect
	}
	for _, at := range together {
		at.Source = false
		l.known.change(mismatch{at, d}, mismatchLife, func(before confidence) confidence {
			if before == proven {
				return proven
			}
			return found
		})
		l.known.put(mismatch{at, ""}, suspect, mismatchLife)
	}
}

// confidence is what is known about a place. Without a digest it is only whether it is a suspect.
func (l *mismatches) confidence(at mirror.Pull, d digest) confidence {
	at.Source = false
	if found, ok := l.known.get(mismatch{at, d}); ok {
		return found
	}
	if found, ok := l.known.get(mismatch{at, ""}); ok {
		return found
	}
	brought, _ := l.brought.get(d)
	if slices.Contains(brought, at) {
		return doubtful
	}
	return trusted
}

// doubtfulLater lets other mirrors go before those who are doubtful, but not the source, which may
// be out of reach.
func (l *mismatches) doubtfulLater(line []mirror.Pull, d digest) []mirror.Pull {
	rank := func(at mirror.Pull) int {
		switch {
		case at.Source:
			return 2
		case l.confidence(at, d) == doubtful:
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(line), func(a, b mirror.Pull) int { return rank(a) - rank(b) })
}
