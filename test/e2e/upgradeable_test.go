package e2e_test

import (
	"context"
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
	"github.com/windows-nodes/wmco/lab/openshift"
)

func TestA20_UpgradeableIsFalseWhileAnythingIsInProgress(t *testing.T) {
	s := cloudStage(t)
	s.upgradeable(t, metav1.ConditionTrue, "upgradeIsSafe")
	// The host of this Machine never boots, so the Machine stays unfinished until the test deletes it.
	s.Cloud.Spoil("slow", cloud.FaultNeverBoots, 1)
	set := s.set(t, "slow", 1)
	s.upgradeable(t, metav1.ConditionFalse, "upgradeIsNotSafe")
	if err := s.Operator.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := s.Operator.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.upgradeable(t, metav1.ConditionFalse, "upgradeIsNotSafe")
	machines := s.machines(t, set.Name)
	if err := s.Client.Delete(t.Context(), &machines[0]); err != nil { // its set creates another Machine
		t.Fatal(err)
	}
	s.running(t, set.Name, 1)
	s.upgradeable(t, metav1.ConditionTrue, "upgradeIsSafe")
	if err := s.Scale(t.Context(), nil, set.Name, -1); err != nil {
		t.Fatal(err)
	}
	s.upgradeable(t, metav1.ConditionTrue, "upgradeIsSafe")
}

// upgradeable waits until both the settings and OLM's object report whether an upgrade is safe.
func (s *stage) upgradeable(t *testing.T, status metav1.ConditionStatus, reason string) {
	t.Helper()
	s.await(t, fmt.Sprintf("Upgradeable to be %s", status), func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		if err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
			return false, "", err
		}
		object := &unstructured.Unstructured{}
		object.SetGroupVersionKind(openshift.OperatorCondition())
		if err := s.Client.Get(ctx, client.ObjectKey{Namespace: contract.OperatorNamespace, Name: operatorCondition},
			object); err != nil {
			return false, "", err
		}
		var told struct {
			Spec struct {
				Conditions []metav1.Condition `json:"conditions"`
			} `json:"spec"`
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &told); err != nil {
			return false, "", err
		}
		mine := meta.FindStatusCondition(config.Status.Conditions, v1alpha1.ConditionUpgradeable)
		olms := meta.FindStatusCondition(told.Spec.Conditions, "Upgradeable")
		is := func(c *metav1.Condition) bool { return c != nil && c.Status == status && c.Reason == reason }
		return is(mine) && is(olms), fmt.Sprintf("settings: %v, OLM: %v", mine, olms), nil
	})
}
