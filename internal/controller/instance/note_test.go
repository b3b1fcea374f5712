package instance

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// follows requests a revision that affects no pods. Then it simulates the daemon's response.
func (r *rig) follows(t *testing.T, n int) {
	t.Helper()
	r.version = mirrored
	r.reconcile(t, n)
	if told := r.node(t, n).Annotations[contract.DesiredRevisionAnnotation]; told != mirrored {
		t.Fatalf("the daemon was told revision %s", told)
	}
	r.annotate(t, n, contract.RevisionAnnotation, mirrored)
}

// crowded returns a host whose node has changed to a new revision. At this time, the operator is already writing as
// many other statuses as it may write at a time.
func crowded(t *testing.T) *rig {
	t.Helper()
	r := staged(t, 1)
	r.publish(t, first, contract.Manifest{})
	r.follows(t, 1)
	if !r.notes.TryAcquire(noters) {
		t.Fatal("a slot for writes is held")
	}
	return r
}

func TestA27_ThatNodesFollowedIsWrittenByFewAtATime(t *testing.T) {
	t.Parallel()
	r := crowded(t)
	writes := r.statusWrites
	if result := r.reconcile(t, 1); result.RequeueAfter < writeDelay || result.RequeueAfter > 2*writeDelay {
		t.Errorf("the instance is reconciled again after %v", result.RequeueAfter)
	}
	if r.statusWrites != writes {
		t.Error("the status was written although the limit of concurrent writes is reached")
	}
	r.isReady(t, 1, false)
	r.advance(t, 1, journey.QuietPeriod+time.Second)
	if r.statusWrites != writes+1 {
		t.Error("a node that does not serve must be written at once, despite the limit")
	}
	r.isReady(t, 1, true)
	r.reconcile(t, 1)
	writes = r.statusWrites
	r.notes.Release(noters)
	r.advance(t, 1, writeDelay)
	if i := r.get(t, 1); i.Status.Revision != mirrored || condition(i, "Ready") != "True NodeReady" ||
		i.Status.Reason() != string(contract.ReasonNodeReady) {
		t.Errorf("%d more writes, status %+v", r.statusWrites-writes, i.Status)
	}
}

// If an operator ends before it wrote a status, the next operator must find out the same from the Node.
func TestA27_WhatWasNotWrittenYetIsFoundOutByTheNextOperator(t *testing.T) {
	t.Parallel()
	r := crowded(t)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.DesiredRevision != first {
		t.Fatalf("status %+v", i.Status)
	}
	patches := r.nodePatches
	r.restart(t)
	r.reconcile(t, 1)
	if i := r.get(t, 1); i.Status.DesiredRevision != mirrored || i.Status.Revision != mirrored ||
		r.nodePatches != patches {
		t.Errorf("%d writes of the Node, status %+v", r.nodePatches-patches, i.Status)
	}
}
