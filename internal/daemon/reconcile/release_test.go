package reconcile_test

import (
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func TestOnlyTheOperatorsReleaseOfThisVeryDaemonEndsItsWork(t *testing.T) {
	end := time.Date(2027, 1, 29, 8, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		annotations map[string]string
		released    bool
	}{
		"nothing":                        {nil, false},
		"another daemon's certificate":   {map[string]string{contract.ReleasedAnnotation: "2026-01-29T08:00:00Z"}, false},
		"no certificate":                 {map[string]string{contract.ReleasedAnnotation: ""}, false},
		"a node that an instance has":    {map[string]string{contract.ReleasedAnnotation: end.Format(time.RFC3339), contract.InstanceAnnotation: "a/b"}, false},
		"the certificate of this daemon": {map[string]string{contract.ReleasedAnnotation: end.Format(time.RFC3339)}, true},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, r *rig) {
				r.ends.Store(&end)
				holds(t, r)
				r.annotateAll(t, c.annotations)
				pass(time.Minute)
				if r.letGo.Load() != c.released {
					t.Errorf("released: %t", r.letGo.Load())
				}
			})
		})
	}
}

func TestANodeThatIsGoneReleasesNobody(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		end := time.Date(2027, 1, 29, 8, 0, 0, 0, time.UTC)
		r.ends.Store(&end)
		holds(t, r)
		if err := r.api.Tracker().Delete(nodes, "", nodeName); err != nil {
			t.Fatal(err)
		}
		pass(24 * time.Hour)
		if r.letGo.Load() || r.state(t, "kube-proxy") != winos.ServiceRunning {
			t.Error("the daemon no longer works on the host")
		}
	})
}
