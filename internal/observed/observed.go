// Package observed records how long this operator itself has seen a state of an object. The object may contain a date
// for the state as well, but this date may be wrong. The operator uses the package before it acts on a state that has
// lasted too long. The records are only in memory, so a new operator starts without records. The package never reads or
// changes an object in the cluster.
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
	// takeover is how long a new leader trusts the dates in objects. If the leader first sees a state during this time,
	// the state began at its date, because the leader may have missed the beginning. If the leader first sees it later,
	// the state began at that moment, whatever its date is.
	takeover = 2 * time.Minute
	// kept is how long a record is kept after a caller last asked for it. A waiting caller asks at least once an hour.
	kept = 2 * time.Hour
)

// Log records which states of objects this operator sees, and since when. Log is safe for concurrent use.
type Log struct {
	now func() time.Time
	mu  sync.Mutex
	// leads is when this operator became the leader.
	leads  time.Time
	sights map[key]sight
}

type key struct {
	uid        types.UID
	name, what string
}

// sight is one state of one object. If the field `dated` differs from the date in the next call, a new state has begun.
type sight struct {
	dated, asked time.Time
	since        policy.Since
}

// New returns a Log with the given clock.
func New(now func() time.Time) *Log { return &Log{now: now, sights: map[key]sight{}} }

// Lead records that this operator becomes the leader now. States that it saw before count as first seen now, because
// the operator did not act on them before.
func (l *Log) Lead() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.leads = l.now()
	for id, one := range l.sights {
		one.since.Seen = l.leads
		l.sights[id] = one
	}
}

// Since returns the start of a state that the object contains a date for. If the date differs from the date in the last
// call, a new state has begun. `what` distinguishes several states of an object.
func (l *Log) Since(object metav1.Object, what string, dated time.Time) policy.Since {
	return l.look(key{object.GetUID(), object.GetName(), what}, dated, true)
}

// While returns when this operator first saw that an object is in a state. If isSo is false, the object isn't in the
// state now, and the result is zero.
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

// NotReady returns when a Node stopped being Ready, or zero if the Node is Ready or nil. kubelet dates its reports with
// the host's clock, which may be wrong, so NotReady returns when this operator saw the report. If kubelet reports
// nothing, the cluster's node lifecycle controller writes the status Unknown with a date, and NotReady uses this date.
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
