package machine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// The write of another client may change only the status, which triggers no event for this controller. So the
// controller must retry without an event.
func TestAChangeOfAnInstanceThatMetAnothersWriteIsMadeLater(t *testing.T) {
	t.Parallel()
	machine := func(change func(*machinev1beta1.Machine)) func(*testing.T, client.Client) {
		return func(t *testing.T, api client.Client) {
			t.Helper()
			m := &machinev1beta1.Machine{}
			err := api.Get(t.Context(), client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: "m"}, m)
			if err != nil {
				t.Fatal(err)
			}
			change(m)
			if err = api.Update(t.Context(), m); err != nil {
				t.Fatal(err)
			}
		}
	}
	leave := func(t *testing.T, api client.Client) {
		t.Helper()
		m := &machinev1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: contract.MachineAPINamespace, Name: "m"}}
		if err := api.Delete(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	ignore := func(m *machinev1beta1.Machine) { metav1.SetMetaDataLabel(&m.ObjectMeta, contract.IgnoreLabel, "true") }
	for name, test := range map[string]struct {
		before, then func(*testing.T, client.Client)
		is           func(*v1alpha1.WindowsInstance) bool
	}{
		"its Machine is gone": {
			then: leave,
			is:   func(i *v1alpha1.WindowsInstance) bool { return i == nil },
		},
		"its Machine leaves": {
			before: machine(func(m *machinev1beta1.Machine) { m.Finalizers = []string{"machine.openshift.io/m"} }),
			then:   leave,
			is:     func(i *v1alpha1.WindowsInstance) bool { return i == nil },
		},
		"its host has another address": {
			then: machine(func(m *machinev1beta1.Machine) { m.Status.Addresses[0].Address = "10.0.0.2" }),
			is:   func(i *v1alpha1.WindowsInstance) bool { return i != nil && i.Spec.Address == "10.0.0.2" },
		},
		"its Machine must be ignored": {
			then: machine(ignore),
			is:   func(i *v1alpha1.WindowsInstance) bool { return i != nil && i.Spec.Paused },
		},
		"its Machine is ignored no more": {
			before: machine(ignore),
			then:   machine(func(m *machinev1beta1.Machine) { delete(m.Labels, contract.IgnoreLabel) }),
			is:     func(i *v1alpha1.WindowsInstance) bool { return i != nil && !i.Spec.Paused },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.look(t)
			if test.before != nil {
				test.before(t, q.api)
				q.look(t)
			}
			test.then(t, q.api)
			q.client = met(t, q.api)
			if result := q.look(t); result.RequeueAfter != staleRetry {
				t.Errorf("reconciled again after %s", result.RequeueAfter)
			}
			if test.is(q.present(t)) {
				t.Fatal("the change was made in spite of the other write")
			}
			q.look(t)
			if i := q.present(t); !test.is(i) {
				t.Errorf("the instance is %+v", i)
			}
		})
	}
}

// met returns a client that simulates a write by another client just before the first change.
func met(t *testing.T, api client.Client) client.Client {
	t.Helper()
	watching, ok := api.(client.WithWatch)
	if !ok {
		t.Fatalf("%T does not support watches", api)
	}
	isMet := false
	return interceptor.NewClient(watching, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch,
		o client.Object, patch client.Patch, options ...client.PatchOption) error {
		if !isMet {
			isMet = true
			return apierrors.NewConflict(schema.GroupResource{Resource: "windowsinstances"}, o.GetName(), nil)
		}
		return c.Patch(ctx, o, patch, options...)
	}})
}

// present returns the instance of Machine m, or nil if it is deleted.
func (q *queue) present(t *testing.T) *v1alpha1.WindowsInstance {
	t.Helper()
	i := &v1alpha1.WindowsInstance{}
	err := q.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "m"}, i)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return i
}

// refuse makes the API server return an error when the instance of a Machine is created.
func (q *queue) refuse(name string, why error) {
	q.t.Helper()
	watching, ok := q.api.(client.WithWatch)
	if !ok {
		q.t.Fatalf("%T does not support watches", q.api)
	}
	q.client = interceptor.NewClient(watching, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch,
		o client.Object, options ...client.CreateOption) error {
		if o.GetName() == name {
			return why
		}
		return c.Create(ctx, o, options...)
	}})
}

// quota returns the error that the API server returns if a ResourceQuota is used up.
func quota() error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: "windowsinstances"}, "m", errors.New("exceeded quota"))
}

func TestAnInstanceThatCantBeMadeKeepsNoOtherMachineWaiting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		why    error
		failed bool
	}{"a quota": {quota(), false}, "a fault": {errors.New("etcdserver: no leader"), true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := newQueue(t)
			q.refuse("m", test.why)
			q.provisioned("n", "10.0.0.2")
			result, err := q.Reconcile(t.Context(), ctrl.Request{})
			if (err != nil) != test.failed || !test.failed && result.RequeueAfter != nameRetry {
				t.Errorf("reconciled again after %s, %v", result.RequeueAfter, err)
			}
			n := &v1alpha1.WindowsInstance{}
			if err = q.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "n"}, n); err != nil {
				t.Error(err)
			}
			q.client = q.api
			if q.look(t); q.present(t) == nil {
				t.Error("the instance is not created later")
			}
		})
	}
}

// Administrators of Machines don't read the operator's log, so the problem must be reported on the Machine.
func TestAnInstanceThatTheAPIServerRefusesIsAProblemOfItsMachineWhileItLasts(t *testing.T) {
	t.Parallel()
	q := newQueue(t)
	q.refuse("m", quota())
	q.after(0, 1, nameRetry)
	q.knows("at once")
	q.after(time.Minute, 1, nameRetry)
	q.knows("when it has lasted", "exceeded quota")
	if !strings.Contains(q.said[0], "m "+eventSetupFailure) || !strings.Contains(q.said[0], "exceeded quota") {
		t.Errorf("the events of the Machine are %q", q.said)
	}
	q.client = q.api
	q.after(nameRetry, 1, 0)
	q.knows("when it is made")
}
