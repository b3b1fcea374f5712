package publish_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestAClusterThatIsNotOpenShiftIsToldSoAndTheOperatorGoesOn(t *testing.T) {
	t.Parallel()
	p := startPlane(t, false)
	p.run(t, time.Second)
	var problems []*contract.Problem
	eventually(t, "waiting for the problems", func(context.Context) (bool, error) {
		problems = p.source.Problems()
		return len(problems) > 0, nil
	})
	if len(problems) != 6 {
		t.Errorf("%d problems: %v", len(problems), problems)
	}
	for _, problem := range problems {
		if problem.Reason != contract.ReasonClusterFactsIncomplete {
			t.Errorf("reason %s", problem.Reason)
		}
		if !strings.Contains(problem.Detail, "not OpenShift") &&
			!strings.Contains(problem.Detail, contract.BootstrapTokenSecret) {
			t.Errorf("detail %q", problem.Detail)
		}
	}
	var list corev1.ConfigMapList
	if err := p.admin.List(t.Context(), &list, client.InNamespace(contract.OperatorNamespace)); err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		if strings.HasPrefix(c.Name, contract.ServicesConfigMapPrefix) {
			t.Errorf("%s is published", c.Name)
		}
	}
}
