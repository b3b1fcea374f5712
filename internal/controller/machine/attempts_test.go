package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// vain creates Machines of the set one after another. The host of each Machine refuses the key. vain returns the name
// of the first Machine that is not replaced.
func (y *yard) vain(names ...string) string {
	y.t.Helper()
	for _, name := range names {
		y.clock = y.clock.Add(10 * time.Minute)
		y.machine(name, false)
		y.refuses(name)
		y.reconcile()
		y.reconcile() // a second reconcile must do nothing
		for _, left := range y.left() {
			if left == name {
				return name
			}
		}
		y.gone(name)
	}
	return ""
}

func TestA19_ReplacingInVainEndsWhateverTheOperatorTakesTheTimeFor(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{
		"the API server's": 0, "a day earlier": -24 * time.Hour, "a day later": 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 1) // the host of this Machine accepts the key, and was created before the others
			y.scale(2)
			y.skew = skew
			if stays := y.vain("x0", "x1", "x2", "x3", "x4"); stays != "x3" {
				t.Fatalf("Machine %q is not replaced, want x3; events %q", stays, y.said)
			}
			if last := y.said[len(y.said)-1]; !strings.Contains(last, "W826") {
				t.Errorf("the last event is %q", last)
			}
		})
	}
}

func TestA19_ASuccessorThatLetsUsInCountsWhateverTheOperatorTakesTheTimeFor(t *testing.T) {
	t.Parallel()
	for name, skew := range map[string]time.Duration{
		"the API server's": 0, "a day earlier": -24 * time.Hour, "a day later": 24 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := newYard(t, 1)
			y.scale(2)
			y.skew = skew
			y.vain("x0", "x1")
			y.clock = y.clock.Add(10 * time.Minute)
			y.machine("good", true)
			y.reconcile()
			y.scale(3)
			if stays := y.vain("x2", "x3", "x4", "x5"); stays != "x5" { // three more Machines are replaced
				t.Errorf("Machine %q is not replaced, want x5; events %q", stays, y.said)
			}
		})
	}
}

func TestA19_WhatAnOperatorNotedOfReplacementsInVainCountsForTheNext(t *testing.T) {
	t.Parallel()
	y := newYard(t, 1) // the host of this Machine accepts the key, and was created before the others
	y.scale(2)
	y.create(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.ReplacementsConfigMap},
		Data:       map[string]string{"set": `{"publicKeyHash":"a","machines":["1","2","3"],"newest":"2026-01-01T00:00:00Z"}`},
	})
	y.restart()
	if stays := y.vain("x0"); stays != "x0" {
		t.Fatalf("the Machine was replaced after three failed replacements; events %q", y.said)
	}
	y.restart()
	y.scale(3)
	y.machine("good", true)
	y.restart()
	y.reconcile()
	y.reconcile()
	y.want("good", "m0")
}
