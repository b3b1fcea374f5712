package machine

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/inventory"
)

// maxFutile is how many Machines of a set are replaced before one that came instead must have let
// us in. Where the template of hosts holds another key, as on platforms that have no user data,
// replacing them again and again would help nobody.
const maxFutile = 3

// futility counts, by set, Machines that were replaced and have not been followed by one that lets
// us in.
type futility struct {
	mu   sync.Mutex
	sets map[types.UID]attempt
}

// attempt is what was tried for a set, and for which key.
type attempt struct {
	hash  string
	count int
	since time.Time
}

func newFutility() *futility { return &futility{sets: map[types.UID]attempt{}} }

// replaced notes that a Machine was deleted because it does not let a key in.
func (f *futility) replaced(m inventory.Machine, hash string, now time.Time) {
	if m.Owner == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	tried := f.sets[m.Owner.UID]
	if tried.hash != hash {
		tried = attempt{hash: hash, since: now.Truncate(time.Second)} // as times of creation are kept
	}
	tried.count++
	f.sets[m.Owner.UID] = tried
}

// fruitful notes that a Machine lets the present key in. It counts when it came after another was
// deleted.
func (f *futility) fruitful(m inventory.Machine) {
	if m.Owner == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if tried, ok := f.sets[m.Owner.UID]; ok && !m.CreatedAt.Before(tried.since) {
		delete(f.sets, m.Owner.UID)
	}
}

// futile says whether enough was tried for a set with a key.
func (f *futility) futile(set types.UID, hash string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	tried := f.sets[set]
	return tried.hash == hash && tried.count >= maxFutile
}
