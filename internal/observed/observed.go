// Package observed answers since when this operator has itself seen what an object dates. Whoever acts because
// something lasts too long asks it: the rollout and the journeys of hosts. It writes nothing down, so another operator
// begins anew, and it never reads or changes an object.
package observed

import (
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// takeover is how long an operator that leads believes dates: what it sees first then may have begun before.
	// Whatever it sees first later began then, whatever its date.
	takeover = 2 * time.Minute
	// kept is how long a sight is kept about which nobody asks. Whoever waits asks every few minutes.
	kept = time.Hour
)

// Log keeps what this operator sees, and since when. It may be used from several goroutines.
type Log struct {
	now func() time.Time
	mu  sync.Mutex
	// leads is when this operator began to lead.
	leads  time.Time
	sights map[key]sight
}

type key struct {
	uid        types.UID
	name, what string
}

// sight is one condition of one object. Its date only tells it from the next.
type sight struct {
	dated, asked time.Time
	since        policy.Since
}

// New makes a Log that goes by a clock.
func New(now func() time.Time) *Log { return &Log{now: now, sights: map[key]sight{}} }

// Lead notes that this operator leads from now on. Whatever it saw before counts as seen now: until then, nobody acted.
func (l *Log) Lead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = l.now()
	for id, one := range l.sights {
		one.since.Seen = l.leads
		l.sights[id] = one
	}
}

// Since is since when something is the case with an object that dates it. Another date is another begin.
func (l *Log) Since(object metav1.Object, what string, dated time.Time) policy.Since {
	return l.look(key{object.GetUID(), object.GetName(), what}, dated, true)
}

// While is since when this operator has seen that something is the case with an object; zero while it is not.
func (l *Log) While(object metav1.Object, what string, isSo bool) policy.Since {
	since := l.look(key{object.GetUID(), object.GetName(), what}, time.Time{}, isSo)
	since.Began = since.Seen
	return since
}

func (l *Log) look(id key, dated time.Time, isSo bool) policy.Since {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !isSo {
		delete(l.sights, id)
		return policy.Since{}
	}
	one, known := l.sights[id]
	if !known {
		maps.DeleteFunc(l.sights, func(_ key, one sight) bool { return now.Sub(one.asked) > kept })
	}
	if !known || !one.dated.Equal(dated) {
		one = sight{dated: dated, since: policy.Since{Began: now, Seen: now}}
		if before := now.Sub(dated); before > 0 && (l.leads.IsZero() || now.Sub(l.leads) < takeover) {
			one.since.Began = now.Add(-before)
		}
	}
	one.asked = now
	l.sights[id] = one
	return one.since
}

// NotReady is since when a Node is not Ready; zero for one that is, and for nil. Kubelet dates its reports by its
// host's clock, which may be wrong: they count from when they were seen. The cluster's node lifecycle controller writes
// Unknown where kubelet reports nothing.
func (l *Log) NotReady(node *corev1.Node) policy.Since {
	if node == nil {
		return policy.Since{}
	}
	ready, dated := policy.ReadyCondition(node), node.CreationTimestamp.Time
	if ready != nil {
		dated = ready.LastTransitionTime.Time
	}
	since := l.look(key{node.UID, node.Name, "not Ready"}, dated, !policy.IsReady(node))
	if ready != nil && ready.Status != corev1.ConditionUnknown {
		since.Began = since.Seen
	}
	return since
}
