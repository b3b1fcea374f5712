package settings

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

func claimClient(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.WindowsMachineConfig{}).Build()
}

func ownedBy(namespace string, since time.Time, hosts int32) *v1alpha1.WindowsMachineConfig {
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	config.Status.Operator = v1alpha1.OperatorStatus{Namespace: namespace, RenewTime: &metav1.Time{Time: since}}
	config.Status.Instances.Total = hosts
	return config
}

func TestA63_TheNodesOfAClusterAreOneOperators(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	long := now.Add(-time.Hour)
	for name, c := range map[string]struct {
		objects []client.Object
		refused string // a part of the error; empty if the claim succeeds
	}{
		"a new cluster":                          {},
		"our own from before":                    {objects: []client.Object{ownedBy("here", long, 3)}},
		"another is at work":                     {[]client.Object{ownedBy("there", now.Add(-7*time.Minute), 0)}, "it renewed its claim at 2026-01-01T11:53:00Z"},
		"another is away, with hosts":            {[]client.Object{ownedBy("there", long, 3)}, "it has 3 hosts"},
		"another's clock is a little ahead":      {[]client.Object{ownedBy("there", now.Add(time.Minute), 0)}, "it renewed its claim at"},
		"another's clock once was far ahead":     {objects: []client.Object{ownedBy("there", now.Add(24*time.Hour), 0)}},
		"another ended long ago and has no host": {objects: []client.Object{ownedBy("there", long, 0)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reader := claimClient(t, c.objects...)
			err := Claim(t.Context(), reader, "here", func() time.Time { return now })
			config := &v1alpha1.WindowsMachineConfig{}
			if got := reader.Get(t.Context(), types.NamespacedName{Name: contract.MachineConfigObject}, config); got != nil {
				t.Fatal(got)
			}
			if c.refused == "" {
				if err != nil || config.Status.Operator.Namespace != "here" {
					t.Errorf("%v, %+v", err, config.Status.Operator)
				}
				return
			}
			problem, ok := contract.AsProblem(err)
			if !ok || problem.Reason != contract.ReasonAnotherOperator || !strings.Contains(problem.Detail, c.refused) ||
				!strings.Contains(problem.Detail, "namespace there") {
				t.Errorf("%v", err)
			}
			if config.Status.Operator.Namespace != "there" {
				t.Errorf("the claim was written: %+v", config.Status.Operator)
			}
		})
	}
}

func TestA63_OfTwoOperatorsThatClaimAtOnceOneGetsTheNodes(t *testing.T) {
	t.Parallel()
	c := claimClient(t)
	var both sync.WaitGroup
	var errs [2]error
	for i, namespace := range []string{"one", "two"} {
		both.Go(func() { errs[i] = Claim(t.Context(), c, namespace, time.Now) })
	}
	both.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("%v, %v", errs[0], errs[1])
	}
}

func TestA63_AClaimIsRenewedAndNotWrittenMoreOftenThanNeeded(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := claimClient(t, ownedBy("here", start, 3))
	for _, step := range []struct{ after, want time.Duration }{{time.Minute, 0}, {claimPeriod, claimPeriod},
		{-time.Hour, -time.Hour}} { // a clock that was ahead was set back
		if err := Claim(t.Context(), c, "here", func() time.Time { return start.Add(step.after) }); err != nil {
			t.Fatal(err)
		}
		config := &v1alpha1.WindowsMachineConfig{}
		if err := c.Get(t.Context(), types.NamespacedName{Name: contract.MachineConfigObject}, config); err != nil {
			t.Fatal(err)
		}
		if got := config.Status.Operator.RenewTime.Sub(start); got != step.want {
			t.Errorf("after %s, the claim was renewed at %s", step.after, got)
		}
	}
}

func TestA63_AnOperatorWhoseNodesWereTakenOverEnds(t *testing.T) {
	t.Parallel()
	c := claimClient(t, ownedBy("there", time.Now(), 1))
	problem, ok := contract.AsProblem(Claimer{Client: c, Namespace: "here"}.Start(t.Context()))
	if !ok || problem.Reason != contract.ReasonAnotherOperator {
		t.Errorf("%v", problem)
	}
}
