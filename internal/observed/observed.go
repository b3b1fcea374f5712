// Package observed remembers since when this operator has itself seen a state that an object dates. The rollout and the
// journeys of hosts use it before they act because a state lasts too long. It writes nothing to the cluster, so another
// operator starts with an empty record, and it never reads or changes an object.
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
	// kept is how long an unused record is kept. Callers that wait ask every few minutes.
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

// Lead records that this operator leads from now on. States that it saw before count as seen now, because it did not
// act until then.
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

// NotReady is since when a Node has not been Ready. It is zero if the Node is Ready or nil. Kubelet dates its reports
// by its host's clock, which may be wrong, so they count from when this operator saw them. If kubelet reports nothing,
// the cluster's node lifecycle controller writes Unknown.
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
