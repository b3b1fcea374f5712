package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
)

func TestA19_AMachineThatRefusesTheKeyIsReplaced(t *testing.T) {
	s := cloudStage(t)
	s.Cloud.Spoil("refusing", cloud.FaultWrongKey, 2)
	s.set(t, "refusing", 3)
	bad := map[types.UID]bool{}
	for _, m := range s.booted(t, "refusing", 3) {
		if m.Annotations[cloud.FaultAnnotation] != "" {
			bad[m.UID] = true
		}
	}
	if len(bad) != 2 {
		t.Fatalf("%d machines have the fault, want 1", len(bad))
	}
	err := s.Await(t.Context(), 2*soon, "the refusing machines to be replaced",
		func(ctx context.Context) (bool, string, error) {
			machines, err := s.Machines(ctx, "refusing")
			left := 0
			for _, m := range machines {
				if bad[m.UID] {
					left++
				}
			}
			return left == 0 && len(machines) == 3, fmt.Sprintf("%d machines, %d of them refuse", len(machines), left),
				err
		})
	if err != nil {
		t.Fatal(errors.Join(err, errors.New(s.Operator.Tail(4000))))
	}
	s.running(t, "refusing", 3)
}

func TestA19_AMachineWithoutOwnerIsNeverReplaced(t *testing.T) {
	s := cloudStage(t)
	m := s.lone(
		t, "orphan", func(
			m *machinev1beta1.Machine) {
			m.Annotations[cloud.FaultAnnotation] = string(cloud.FaultWrongKey)
		})
	s.reason(t, m, contract.ReasonKeyRefused)
	s.refusedAgain(t, m)
	if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(m), m); err != nil || !m.DeletionTimestamp.IsZero() {
		t.Errorf("a machine without a set, which no one replaces, was deleted: %v", err)
	}
}

// refusedAgain waits until a host has refused the operator's key several more times.
func (s *stage) refusedAgain(t *testing.T, m *machinev1beta1.Machine) {
	t.Helper()
	const often = 3
	err := s.Await(t.Context(), 2*soon, "machine "+m.Name+" to be tried again",
		func(ctx context.Context) (bool, string, error) {
			i, err := s.InstanceNamed(ctx, m.Name)
			if err != nil {
				return false, "no instance", client.IgnoreNotFound(errors.Unwrap(err))
			}
			return i.Status.Failures >= often, fmt.Sprintf("%d failures", i.Status.Failures), nil
		})
	if err != nil {
		t.Fatal(err)
	}
}

func TestA19_AnOwnerKeepsItsMinimum(t *testing.T) {
	s := cloudStage(t)
	s.set(t, "minimum", 2, func(set *machinev1beta1.MachineSet) {
		set.Annotations = map[string]string{contract.MinAvailableAnnotation: "2"}
	})
	before := s.running(t, "minimum", 2)
	other := newKey(t)
	s.replaceKey(t, other)
	t.Cleanup(func() { s.settle(t) })
	s.letsIn(t, contract.MachineAPINamespace, other)
	for _, m := range before {
		s.told(t, &m, "MachineDeletionRestricted", "")
	}
	pause(t, 5*time.Second)
	for _, m := range before {
		if err := s.Client.Get(t.Context(), client.ObjectKeyFromObject(&m), &m); err != nil ||
			!m.DeletionTimestamp.IsZero() {
			t.Errorf("machine %s was deleted although its set must keep it: %v", m.Name, err)
		}
	}
	// When the set has one more Machine, the operator may delete one of its Machines.
	if err := s.Scale(t.Context(), nil, "minimum", 1); err != nil {
		t.Fatal(err)
	}
	s.replacedBy(t, "minimum", before, 3)
}

func TestAHostThatNeverAnswersIsReportedAndNotReplaced(t *testing.T) {
	s := cloudStage(t)
	s.Cloud.Spoil("silent", cloud.FaultNeverBoots, 1)
	s.set(t, "silent", 1)
	var m machinev1beta1.Machine
	s.await(t, "the machine to have an address", func(ctx context.Context) (bool, string, error) {
		machines, err := s.Machines(ctx, "silent")
		if len(machines) == 1 {
			m = machines[0]
		}
		return len(m.Status.Addresses) > 0, "", err
	})
	s.reason(t, &m, contract.ReasonUnreachable)
	s.refusedAgain(t, &m)
	if now := s.machines(t, "silent"); len(now) != 1 || now[0].UID != m.UID {
		t.Error("a host that only does not answer was replaced")
	}
}
