package machine

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/windows-nodes/wmco/internal/rollout"
)

// mayGo asks for a place for another node.
func (y *yard) mayGo(name string) bool {
	y.t.Helper()
	granted, err := y.gate.Ask(y.t.Context(), rollout.Question{Name: "test", Node: name,
		Decide: func(look rollout.Look) bool {
			return look.MayDisrupt(name).Allowed
		}})
	if err != nil {
		y.t.Fatal(err)
	}
	return granted
}

// unheard has the deletion of m0 time out.
func unheard(t *testing.T) *yard {
	t.Helper()
	y := newYard(t, 3)
	y.rotate("b")
	y.refuses("m0")
	y.denied = apierrors.NewTimeoutError("away", 1)
	if _, err := y.Reconcile(t.Context(), ctrl.Request{}); err == nil {
		t.Fatal("it is not tried again")
	}
	y.denied = nil
	return y
}

func TestAMachineKeepsItsPlaceWhileItsDeletionMayArrive(t *testing.T) {
	t.Parallel()
	y := unheard(t)
	if y.mayGo("m1") {
		t.Error("another goes ahead, and the Machine may be deleted")
	}
	y.restart()
	y.reconcile() // by whoever leads then, at once
	y.want("m1", "m2")
	if y.mayGo("m1") {
		t.Error("another goes ahead, and the budget is 1")
	}
}

func TestAMachineThatIsNotToGoAnyMoreGivesItsPlaceBack(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(y *yard){
		"its host lets the key in": func(y *yard) {
			i := y.instance("m0")
			i.Status.KeyTrial, i.Status.PublicKeyHash = nil, "b"
			if err := y.api.Status().Update(y.t.Context(), i); err != nil {
				y.t.Fatal(err)
			}
		},
		"it is ignored": func(y *yard) {
			i := y.instance("m0")
			i.Spec.Paused = true
			if err := y.api.Update(y.t.Context(), i); err != nil {
				y.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			y := unheard(t)
			change(y)
			y.reconcile()
			y.want("m0", "m1", "m2")
			if !y.mayGo("m1") {
				t.Error("nobody uses the place, and nobody gets it")
			}
		})
	}
}
