package rollout

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/policy"
)

// outages is when this operator first saw each Node not Ready, by its name.
type outages struct {
	mu    sync.Mutex
	nodes map[string]outage
}

// outage is the last time that a Node ceased to be Ready. The time that the Node itself names is only
// what tells one from the next.
type outage struct {
	uid        types.UID
	transition time.Time
	// seen is when that was first seen, asked when somebody last wanted to know.
	seen, asked time.Time
}

// outageKept is for how long an outage is remembered about which nobody asks: by then its Node is
// Ready, or gone. Who waits for its end asks every few minutes.
const outageKept = time.Hour

// SeenNotReady is when this operator first saw a Node not Ready that is so still; zero for one that
// is Ready, and for nil. The first call about an outage notes the present time.
func (g *Gate) SeenNotReady(node *corev1.Node) time.Time {
	if node == nil {
		return time.Time{}
	}
	transition, now := policy.NotReadySince(node, time.Time{}), g.Now()
	if transition.IsZero() {
		return time.Time{}
	}
	g.outages.mu.Lock()
	defer g.outages.mu.Unlock()
	one, known := g.outages.nodes[node.Name]
	if !known {
		maps.DeleteFunc(g.outages.nodes, func(_ string, one outage) bool { return now.Sub(one.asked) > outageKept })
	}
	if one.uid != node.UID || !one.transition.Equal(transition) {
		one = outage{uid: node.UID, transition: transition, seen: now}
	}
	one.asked = now
	g.outages.nodes[node.Name] = one
	return one.seen
}
