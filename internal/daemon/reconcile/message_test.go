package reconcile_test

import (
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestAStartThatFailsIsToldWithoutDoubledWords(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.broken.Store(true)
		r.overlay(t)
		r.node(t, one())
		r.publish(t, manifest())
		r.start(t, r.api)
		pass(5 * time.Minute)
		status := r.annotations(t)[contract.ApplyStatusAnnotation]
		if strings.Count(status, "starting service kube-proxy") != 1 {
			t.Errorf("the Node reports %q", status)
		}
	})
}
