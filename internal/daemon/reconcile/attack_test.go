package reconcile_test

import (
	"errors"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// passes counts the passes of the daemon so far.
func (p *pulls) passes() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.changed)
}

// TestARevisionThatFailedCausesNoPassAfterPassWhileTheAPIServerIsAway: a revision has failed, and its retry is due. But
// the daemon can't read the revision, because the API server is unreachable. The daemon must not run pass after pass.
func TestARevisionThatFailedCausesNoPassAfterPassWhileTheAPIServerIsAway(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		r.picky.Store(true)
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, another("two")))
		pass(10 * time.Second)
		r.stopDaemon()
		pass(3 * time.Minute)
		r.api.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, errors.New("unreachable")
		})
		r.start(t, r.api)
		for second := range 30 {
			before := r.pulls.passes()
			pass(time.Second)
			if n := r.pulls.passes() - before; n > 20 {
				t.Fatalf("second %d: %d passes", second, n)
			}
		}
	})
}

// TestServicesStayWhileARevisionIsOnlyPartlyUnderstood: a revision, which the daemon can only parse in part, has
// replaced the daemon's program. Now the Node's annotation names yet another revision, whose payload is not on the
// host. The services must continue to run.
func TestServicesStayWhileARevisionIsOnlyPartlyUnderstood(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		r.supplied(t, newProxy, newKubelet)
		r.payloadServer.slow = time.Hour
		settled(t, r)
		version := r.released(t, withDaemon(another("two"), newDaemon), onlyForAnotherDaemon)
		r.annotate(t, contract.DesiredRevisionAnnotation, version)
		for range 600 {
			if r.replaced.Load() > 0 {
				break
			}
			pass(100 * time.Millisecond)
		}
		if r.replaced.Load() == 0 {
			t.Fatal("the daemon was not replaced, so the test shows nothing")
		}
		r.annotate(t, contract.DesiredRevisionAnnotation, r.publish(t, withDaemon(next(), newDaemon)))
		pass(10 * time.Second)
		for _, name := range []string{contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceKubeProxy} {
			if _, err := r.Host().Services.Get(t.Context(), name); errors.Is(err, winos.ErrNotFound) {
				t.Errorf("service %s is gone", name)
			}
		}
	})
}
