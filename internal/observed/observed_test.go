package observed_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/observed"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/clock"
)

var began = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func notReady(name string, status corev1.ConditionStatus, since time.Time) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status,
			LastTransitionTime: metav1.NewTime(since)}}}}
}

func TestA82_SinceWhenANodeIsNotReadyGoesByClocksThatAreTrusted(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		status corev1.ConditionStatus
		says   time.Duration // how long ago the node became NotReady, according to the Node
		leads  time.Duration // how long this operator has been the leader
		want   time.Duration // how long ago, according to the result
		ready  bool
	}{
		"kubelet reports":                     {status: corev1.ConditionFalse, says: time.Hour},
		"kubelet's clock is ahead":            {status: corev1.ConditionFalse, says: -time.Hour},
		"the cluster misses it":               {status: corev1.ConditionUnknown, says: time.Hour, want: time.Hour},
		"the cluster's clock is ahead":        {status: corev1.ConditionUnknown, says: -time.Hour},
		"the cluster's date is old, and news": {status: corev1.ConditionUnknown, says: time.Hour, leads: time.Hour},
		"it is Ready":                         {status: corev1.ConditionTrue, says: time.Hour, ready: true},
		"the operator took over while it was missed": {status: corev1.ConditionUnknown, says: time.Hour,
			leads: time.Minute, want: time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := clock.At(began)
			log := observed.New(func() time.Time { return now })
			log.Lead()
			now = now.Add(test.leads)
			since := log.NotReady(notReady("a", test.status, now.Add(-test.says).Round(0)))
			if since.IsZero() != test.ready || !test.ready && (now.Sub(since.Began) != test.want || now.Sub(since.Seen) != 0) {
				t.Errorf("%+v", since)
			}
		})
	}
}

func TestA82_AClockThatIsSetMakesNothingLate(t *testing.T) {
	t.Parallel()
	for name, by := range map[string]time.Duration{"forward": 2 * time.Hour, "back": -12 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			now := clock.At(began)
			log := observed.New(func() time.Time { return now })
			log.Lead()
			node := notReady("a", corev1.ConditionUnknown, now.Add(-4*time.Minute).Round(0))
			left := func() time.Duration { return log.NotReady(node).Left(10*time.Minute, policy.Witnessed, now) }
			if d := left(); d != 6*time.Minute {
				t.Errorf("at first, %s are left", d)
			}
			now = clock.Set(now, by)
			if d := left(); d != 6*time.Minute {
				t.Errorf("after the clock was set, %s are left", d)
			}
			now = now.Add(6 * time.Minute)
			if d := left(); d != 0 {
				t.Errorf("at the end, %s are left", d)
			}
		})
	}
}

// After a restore of etcd, the Node may contain the same date a second time.
func TestA82_ANodeThatWasReadyMeanwhileIsSeenAnew(t *testing.T) {
	t.Parallel()
	now := began
	log := observed.New(func() time.Time { return now })
	log.Lead()
	now = now.Add(time.Hour)
	node := notReady("a", corev1.ConditionUnknown, now)
	log.NotReady(node)
	now = now.Add(20 * time.Minute)
	log.NotReady(notReady("a", corev1.ConditionTrue, now))
	if since := log.NotReady(node); !since.Began.Equal(now) || !since.Seen.Equal(now) {
		t.Errorf("%+v, the time is %s", since, now)
	}
}

// No event reports that a Node was deleted, so records must be deleted if nobody asks for them.
func TestASightThatNobodyAsksAboutIsForgotten(t *testing.T) {
	t.Parallel()
	now := began
	log := observed.New(func() time.Time { return now })
	seen := func(name string, after time.Duration) time.Duration {
		now = began.Add(after)
		return log.NotReady(notReady(name, corev1.ConditionFalse, began)).Seen.Sub(began)
	}
	seen("gone", 0)
	seen("awaited", 0)
	seen("awaited", 10*time.Minute)
	seen("another", 121*time.Minute)
	if gone, awaited := seen("gone", 121*time.Minute), seen("awaited", 121*time.Minute); gone != 121*time.Minute || awaited != 0 {
		t.Errorf("recorded after %s and %s", gone, awaited)
	}
	anew := notReady("awaited", corev1.ConditionFalse, began)
	anew.UID = "anew"
	if since := log.NotReady(anew).Seen.Sub(began); since != 121*time.Minute {
		t.Errorf("another Node with that name was recorded after %s", since)
	}
}

func TestA82_WhatAStandbySawCountsFromWhenItLeads(t *testing.T) {
	t.Parallel()
	now := clock.At(began)
	log := observed.New(func() time.Time { return now })
	node := notReady("a", corev1.ConditionUnknown, now)
	log.NotReady(node)
	now = now.Add(time.Hour / 2)
	log.Lead()
	if since := log.NotReady(node); now.Sub(since.Seen) != 0 || now.Sub(since.Began) != time.Hour/2 {
		t.Errorf("%+v", since)
	}
}
