package settings

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	// claimPeriod is how often the operator renews its claim on the nodes.
	claimPeriod = 5 * time.Minute
	// claimExpiry is how long a claim is valid after its last renewal. Within this time, an operator can miss two
	// renewals, or restart on another node.
	claimExpiry = 3 * claimPeriod
)

// OwnedElsewhere reports whether the Windows nodes belong to an operator in another namespace, and why. As long as that
// operator has hosts, the nodes belong to it, even if it isn't running, because only it has the instances of these
// hosts. A claim with a time far in the future comes from a wrong clock and doesn't count.
func OwnedElsewhere(status v1alpha1.WindowsMachineConfigStatus, namespace string,
	now time.Time) (why string, owned bool) {
	owner := status.Operator
	switch {
	case owner.Namespace == "" || owner.Namespace == namespace:
		return "", false
	case status.Instances.Total > 0:
		return "it has " + contract.Count(int(status.Instances.Total), "host"), true
	case owner.RenewTime != nil && now.Sub(owner.RenewTime.Time).Abs() < claimExpiry:
		return "it renewed its claim at " + owner.RenewTime.UTC().Format(time.RFC3339), true
	}
	return "", false
}

// Claim claims the Windows nodes of the cluster for the operator in this namespace. If they belong to another operator,
// Claim fails with ReasonAnotherOperator. If two operators claim at the same time, the API server accepts one write. A
// repeated call renews an old claim. c must not read from a cache.
func Claim(ctx context.Context, c client.Client, namespace string, now func() time.Time) error {
	return retry.OnError(retry.DefaultRetry, func(err error) bool {
		return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err)
	}, func() error { return claim(ctx, c, namespace, now()) })
}

func claim(ctx context.Context, c client.Client, namespace string, now time.Time) error {
	config := &v1alpha1.WindowsMachineConfig{}
	err := c.Get(ctx, types.NamespacedName{Name: contract.MachineConfigObject}, config)
	if apierrors.IsNotFound(err) {
		if config, err = cluster.Remembered(ctx, c, namespace); err == nil && config.Name != "" {
			return nil // another controller restores the object, and Claimer claims the nodes later
		}
		if config.Name = contract.MachineConfigObject; err == nil {
			err = c.Create(ctx, config)
		}
	}
	if err != nil {
		return fmt.Errorf("reading which operator owns the Windows nodes: %w", err)
	}
	owner := config.Status.Operator
	if why, owned := OwnedElsewhere(config.Status, namespace, now); owned {
		return contract.NewProblem(contract.ReasonAnotherOperator,
			"the Windows nodes belong to the operator in namespace %s (%s), so the one in %s does nothing",
			owner.Namespace, why, namespace)
	}
	if owner.Namespace == namespace && owner.RenewTime != nil && now.Sub(owner.RenewTime.Time).Abs() < claimPeriod/2 {
		return nil
	}
	before := config.DeepCopy()
	config.Status.Operator = v1alpha1.OperatorStatus{Namespace: namespace, RenewTime: &metav1.Time{Time: now}}
	err = c.Status().Patch(ctx, config, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err != nil {
		return fmt.Errorf("claiming the Windows nodes: %w", err)
	}
	return nil
}

// Claimer renews the claim while the operator runs.
type Claimer struct {
	// Client must not read from a cache.
	Client    client.Client
	Namespace string
}

// Start renews the claim until ctx is done. If the nodes belong to another operator, it fails, and the process exits.
func (c Claimer) Start(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, claimPeriod, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, claimPeriod/2)
		defer cancel()
		err := Claim(ctx, c.Client, c.Namespace, time.Now)
		if problem, ok := contract.AsProblem(err); ok {
			return false, problem
		}
		if err != nil {
			logr.FromContextOrDiscard(ctx).Info("renewing the claim of the nodes failed; retrying", "error",
				err.Error())
		}
		return false, nil
	})
}
