package instance

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
	"github.com/windows-nodes/wmco/test/hosttest"
)

// cloudIs returns the same result for every Machine.
type cloudIs struct {
	mu  sync.Mutex
	now journey.Origin
}

func (c *cloudIs) Origin(context.Context, *v1alpha1.WindowsInstance) (journey.Origin, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now, nil
}

func (c *cloudIs) set(now journey.Origin) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = now
}

// ofMachine returns an instance that was created from a Machine, and the cloud that this Machine belongs to.
func ofMachine(t *testing.T) (*rig, *cloudIs) {
	t.Helper()
	objects := listed(1)
	objects[0].(*v1alpha1.WindowsInstance).Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "m",
		UID: "uid-m"}
	r := newRig(t, objects...)
	cloud := &cloudIs{now: journey.Origin{Exists: true, Drains: true}}
	r.parts.Origins = cloud
	return r, cloud
}

// discard deletes the instance because its Machine was deleted.
func (r *rig) discard(t *testing.T, n int) {
	t.Helper()
	r.edit(t, n, func(i *v1alpha1.WindowsInstance) { i.Spec.RemovalPolicy = v1alpha1.RemovalDiscard })
	r.remove(t, n)
}

func TestAMachineIsToldWhatBecameOfItsHost(t *testing.T) {
	t.Parallel()
	r, _ := ofMachine(t)
	r.machine(1).Fail(hosttest.Dialling, contract.NewProblem(contract.ReasonKeyRefused, "no"))
	r.reconcile(t, 1)
	r.machine(1).Fail(hosttest.Dialling, nil)
	r.clock = r.clock.Add(time.Minute)
	r.join(t, 1)
	var condition []string
	for _, e := range r.events {
		if about, ok := e.regarding.(*corev1.ObjectReference); ok {
			condition = append(condition, about.Kind+" "+about.Namespace+"/"+about.Name+" "+string(about.UID)+" "+e.reason)
			if e.reason == eventMachineSetupFailure &&
				(!strings.Contains(e.note, "W202") || !strings.Contains(e.note, "authorized_keys")) {
				t.Errorf("a failure without code or fix: %s", e.note)
			}
		}
	}
	if want := []string{"Machine openshift-machine-api/m uid-m MachineSetupFailure",
		"Machine openshift-machine-api/m uid-m MachineSetup"}; !slices.Equal(condition, want) {
		t.Errorf("the condition is %q", condition)
	}
}

func TestAHostThatGoesWithItsMachineIsLetGoWithoutAConnection(t *testing.T) {
	t.Parallel()
	r, cloud := ofMachine(t)
	r.join(t, 1)
	dials := r.machine(1).Dials()
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.discard(t, 1)
	if result := r.reconcile(t, 1); result.RequeueAfter == 0 || result.RequeueAfter > 5*time.Second {
		t.Errorf("reconciled again after %s", result.RequeueAfter)
	}
	if i := r.get(t, 1); i.Status.Phase != v1alpha1.PhaseRemoving || codeOf(i) != "W804" || i.Status.Failures != 0 {
		t.Errorf("status %+v", i.Status)
	}
	cloud.set(journey.Origin{})
	r.restart(t)
	r.parts.Origins = cloud
	r.reconcile(t, 1)
	if r.exists(t, 1) || r.machine(1).Dials() != dials || r.held(1) != 0 {
		t.Errorf("exists %v, %d connections, holds %d", r.exists(t, 1), r.machine(1).Dials()-dials, r.held(1))
	}
	if err := r.api.Get(t.Context(), types.NamespacedName{Name: "win-a"}, &corev1.Node{}); !apierrors.IsNotFound(err) {
		t.Errorf("the host's Node still exists: %v", err)
	}
}

func TestAPauseDoesNotKeepAHostThatIsDestroyed(t *testing.T) {
	t.Parallel()
	r, cloud := ofMachine(t)
	r.join(t, 1)
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.Paused = true })
	r.discard(t, 1)
	cloud.set(journey.Origin{})
	r.reconcile(t, 1)
	if r.exists(t, 1) {
		t.Error("the instance still exists")
	}
}

func TestACleaningThatCanNotEndTurnsIntoLettingGo(t *testing.T) {
	t.Parallel()
	r, cloud := ofMachine(t)
	r.join(t, 1)
	r.machine(1).Fail(hosttest.Dialling, unreachable())
	r.remove(t, 1)
	for range 4 {
		r.reconcile(t, 1)
		r.clock = r.clock.Add(time.Minute)
	}
	if i := r.get(t, 1); i.Status.Failures < 4 {
		t.Fatalf("status %+v", i.Status)
	}
	cloud.set(journey.Origin{}) // the Machine is deleted, and the machine controller notices this
	r.edit(t, 1, func(i *v1alpha1.WindowsInstance) { i.Spec.RemovalPolicy = v1alpha1.RemovalDiscard })
	r.reconcile(t, 1)
	if r.exists(t, 1) || r.held(1) != 0 {
		t.Error("the instance still exists")
	}
}

func TestWorkAtAHostEndsWhenItIsToldToLeave(t *testing.T) {
	t.Parallel()
	r, cloud := ofMachine(t)
	begun := make(chan struct{}, 1)
	r.slow = func(ctx context.Context) error {
		begun <- struct{}{}
		<-ctx.Done()
		return ctx.Err()
	}
	done := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	go func() {
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: key(1)})
		done <- err
	}()
	select {
	case <-begun:
	case err := <-done:
		t.Fatalf("the host was not dialled: %v", err)
	}
	r.slow = nil
	r.discard(t, 1)
	r.interrupt(t.Context(), r.get(t, 1))
	if err := <-done; err != nil || ctx.Err() != nil {
		t.Fatalf("the interrupted dial returned %v, %v", err, ctx.Err())
	}
	cloud.set(journey.Origin{})
	r.reconcile(t, 1)
	if r.exists(t, 1) || r.held(1) != 0 || len(r.events) > 1 {
		t.Errorf("exists %v, holds %d, events %+v", r.exists(t, 1), r.held(1), r.events)
	}
}
