package journey

import (
	"errors"
	"maps"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// LongestLag is how long the cache may lag behind a write of ours. After that the API server is
// asked: its world may have been set back to an earlier one.
const LongestLag = time.Minute

// written is which version of each Node came of our last write. While the cache shows an older one,
// another write would meet a newer object: it is refused here, and costs the API server nothing.
// Versions of one object are numbers that grow (KEP-5504); one that is none is taken for new.
type written struct {
	mu    sync.Mutex
	nodes map[types.UID]write
}

type write struct {
	version uint64
	at      time.Time
}

// settled says that a write is too old for the cache to lag behind it.
func (w write) settled(now time.Time) bool { return now.Sub(w.at) > LongestLag }

// note remembers a Node as the API server has just written it.
func (w *written) note(node *corev1.Node, now time.Time) {
	version, err := strconv.ParseUint(node.ResourceVersion, 10, 64)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.nodes[node.UID]; !known {
		maps.DeleteFunc(w.nodes, func(_ types.UID, one write) bool { return one.settled(now) })
	}
	w.nodes[node.UID] = write{version, now}
}

// check answers a conflict for a Node that is older than what was written.
func (w *written) check(node *corev1.Node, now time.Time) error {
	version, err := strconv.ParseUint(node.ResourceVersion, 10, 64)
	w.mu.Lock()
	defer w.mu.Unlock()
	last, known := w.nodes[node.UID]
	if err != nil || !known || version >= last.version || last.settled(now) {
		return nil
	}
	return apierrors.NewConflict(corev1.Resource("nodes"), node.Name,
		errors.New("the cache has yet to see what was written last"))
}
