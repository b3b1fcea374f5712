package scene

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Workload is a Deployment of Windows pods with a PodDisruptionBudget.
type Workload struct {
	Name     string
	Replicas int32
	// Grace is the grace period of each pod. It must be a whole number of seconds.
	Grace time.Duration
	// MaxUnavailable is the field of the PodDisruptionBudget. If it is 0, no pod can be evicted.
	MaxUnavailable int
}

// Run creates a workload in the namespace default and waits until all of its pods are running. It requires
// Options.Scheduler.
func (s *Scene) Run(ctx context.Context, timeout time.Duration, w Workload) error {
	labels := map[string]string{"app": w.Name}
	meta := metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: w.Name}
	grace, unavailable := int64(w.Grace/time.Second), intstr.FromInt(w.MaxUnavailable)
	deployment := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{
		Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: &grace, NodeSelector: map[string]string{corev1.LabelOSStable: "windows"},
				Containers:  []corev1.Container{{Name: "c", Image: "mcr.microsoft.com/windows/nanoserver:ltsc2022"}},
				Tolerations: []corev1.Toleration{{Key: contract.TaintKey, Operator: corev1.TolerationOpExists}},
			},
		},
	}}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: meta, Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: &unavailable, Selector: &metav1.LabelSelector{MatchLabels: labels},
	}}
	for _, object := range []client.Object{budget, deployment} {
		if err := s.Client.Create(ctx, object); err != nil {
			return fmt.Errorf("making %T %s: %w", object, w.Name, err)
		}
	}
	return s.Await(ctx, timeout, "the pods of "+w.Name+" to run", func(ctx context.Context) (bool, string, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(deployment), deployment); err != nil {
			return false, "", err
		}
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(budget), budget); err != nil {
			return false, "", err
		}
		ready := deployment.Status.ReadyReplicas
		return ready == w.Replicas && budget.Status.CurrentHealthy == w.Replicas,
			fmt.Sprintf("%d of %d run", ready, w.Replicas), nil
	})
}
