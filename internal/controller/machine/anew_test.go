package machine

import (
	"context"
	"testing"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// earlier is a stale cache of Machines. It shows an old version of one Machine.
type earlier struct {
	client.Reader
	machine machinev1beta1.Machine
}

func (e earlier) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*machinev1beta1.MachineList).Items = []machinev1beta1.Machine{e.machine}
	return nil
}

// remade returns the instance of Machine m, after the Machine was deleted and created again with a different UID.
func remade(t *testing.T, was, providerID string) (q *queue, before *machinev1beta1.Machine) {
	t.Helper()
	q, before = newQueue(t), &machinev1beta1.Machine{}
	at := client.ObjectKey{Namespace: contract.MachineAPINamespace, Name: "m"}
	if err := q.api.Get(t.Context(), at, before); err != nil {
		t.Fatal(err)
	}
	before.Spec.ProviderID = &was
	if err := q.api.Update(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	q.look(t)
	if err := q.api.Delete(t.Context(), before.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	after := before.DeepCopy()
	after.UID, after.ResourceVersion, after.Spec.ProviderID = "m2", "", &providerID
	if err := q.api.Create(t.Context(), after); err != nil {
		t.Fatal(err)
	}
	return q, before
}

func (q *queue) look(t *testing.T) ctrl.Result {
	t.Helper()
	result, err := q.Reconcile(t.Context(), ctrl.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// comesFrom returns the UID of the Machine in the instance's spec, or "" after the instance was deleted.
func (q *queue) comesFrom(t *testing.T) types.UID {
	t.Helper()
	i := q.present(t)
	if i == nil {
		return ""
	}
	return i.Spec.Source.UID
}

// A Machine is restored from a backup while its host keeps running.
func TestANodeStaysWhenItsMachineIsMadeAnewForItsHost(t *testing.T) {
	t.Parallel()
	q, _ := remade(t, "aws:///zone/i-1", "aws:///zone/i-1")
	q.look(t)
	if uid := q.comesFrom(t); uid != "m2" {
		t.Errorf("the instance belongs to Machine %q", uid)
	}
	q.restart()
	q.look(t)
	if uid := q.comesFrom(t); uid != "m2" {
		t.Errorf("after a restart, the instance belongs to Machine %q", uid)
	}
}

func TestANodeGoesWhenAMachineOfAnotherHostHasItsName(t *testing.T) {
	t.Parallel()
	for name, ids := range map[string][2]string{
		"another ID":                {"aws:///zone/i-1", "aws:///zone/i-2"},
		"an ID that is only a name": {"gce://project/zone/m", "gce://project/zone/m"},
		"a name in other letters":   {"azure:///subscriptions/s/virtualMachines/M", "azure:///subscriptions/s/virtualMachines/M"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, _ := remade(t, ids[0], ids[1])
			q.look(t)
			if uid := q.comesFrom(t); uid != "" {
				t.Errorf("the instance belongs to Machine %q", uid)
			}
		})
	}
}

// A stale cache still shows the Machine that was deleted.
func TestANodeOfTheNextMachineIsNotTakenForThatOfTheOneBefore(t *testing.T) {
	t.Parallel()
	q, before := remade(t, "aws:///zone/i-1", "aws:///zone/i-2")
	q.look(t)
	q.look(t)
	if uid := q.comesFrom(t); uid != "m2" {
		t.Fatalf("the instance belongs to Machine %q", uid)
	}
	q.machines = earlier{q.api, *before}
	if result := q.look(t); result.RequeueAfter != staleRetry {
		t.Errorf("reconciled again after %s", result.RequeueAfter)
	}
	if uid := q.comesFrom(t); uid != "m2" {
		t.Errorf("the instance belongs to Machine %q", uid)
	}
}

// A Machine that was created again may lack the label that selects Machines for the cache.
func TestAHostWhoseMachineWasMadeAnewWithoutTheLabelIsCleaned(t *testing.T) {
	t.Parallel()
	q, before := remade(t, "aws:///zone/i-1", "aws:///zone/i-1")
	m := &machinev1beta1.Machine{}
	if err := q.api.Get(t.Context(), client.ObjectKeyFromObject(before), m); err != nil {
		t.Fatal(err)
	}
	m.Labels = nil
	i := &v1alpha1.WindowsInstance{}
	if err := q.api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "m"}, i); err != nil {
		t.Fatal(err)
	}
	i.Finalizers = []string{contract.InstanceFinalizer}
	for _, o := range []client.Object{m, i} {
		if err := q.api.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		q.look(t)
		if err := q.api.Get(t.Context(), client.ObjectKeyFromObject(i), i); err != nil {
			t.Fatal(err)
		}
		if i.DeletionTimestamp.IsZero() || i.Spec.RemovalPolicy == v1alpha1.RemovalDiscard {
			t.Errorf("the deletion is at %v, the removal policy is %s", i.DeletionTimestamp, i.Spec.RemovalPolicy)
		}
	}
}
