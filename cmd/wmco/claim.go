package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/settings"
)

const eventTimeout = 10 * time.Second

// claimNodes claims the cluster's Windows nodes, before the operator reads or writes any other objects. If an operator
// in a different namespace has claimed them, claimNodes returns an error. It retries while the API server is starting.
// The Claimer renews the claim.
func claimNodes(ctx context.Context, restConfig *rest.Config, clients kubernetes.Interface,
	namespace string) (settings.Claimer, error) {
	claimer := settings.Claimer{Namespace: namespace}
	scheme := runtime.NewScheme()
	err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme))
	if err != nil {
		return claimer, fmt.Errorf("making a scheme: %w", err)
	}
	if claimer.Client, err = client.New(restConfig, client.Options{Scheme: scheme}); err != nil {
		return claimer, fmt.Errorf("making a client: %w", err)
	}
	err = untilReady(ctx, logr.FromContextOrDiscard(ctx), "which operator owns the Windows nodes",
		func(ctx context.Context) (bool, error) {
			err := settings.Claim(ctx, claimer.Client, namespace, time.Now)
			_, decided := contract.AsProblem(err)
			return decided, err
		})
	if problem, ok := contract.AsProblem(err); ok {
		announce(ctx, clients, problem, namespace)
		return claimer, fmt.Errorf("%w. %s", err, problem.Reason.Fix())
	}
	return claimer, err
}

// announce reports the problem as an event, not in the WindowsMachineConfig's status, which the other operator writes.
// The event's name depends on the namespace only, so restarts of the container don't create more events.
func announce(ctx context.Context, clients kubernetes.Interface, problem *contract.Problem, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, eventTimeout)
	defer cancel()
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault,
			Name: contract.MachineConfigObject + ".another-operator." + namespace},
		EventTime:           metav1.NowMicro(),
		ReportingController: contract.OperatorServiceAccount, ReportingInstance: namespace,
		Type: corev1.EventTypeWarning, Reason: string(problem.Reason), Action: "Start",
		Note: problem.Error() + ". " + problem.Reason.Fix(),
		Regarding: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion().String(), Kind: "WindowsMachineConfig",
			Name: contract.MachineConfigObject},
	}
	_, err := clients.EventsV1().Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		logr.FromContextOrDiscard(ctx).Info("the event can't be created", "error", err.Error())
	}
}
