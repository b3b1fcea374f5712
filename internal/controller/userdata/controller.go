package userdata

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/userdata"
)

const (
	// resync is how often all is looked at again though nothing told of a change: the cluster's
	// platform may have become known.
	resync = 10 * time.Minute
	// defaultRecheck is how often a namespace is looked for that is not there, or a problem that
	// somebody may have mended.
	defaultRecheck = 20 * time.Second
)

// namespaces are where clouds take user data from. Those of the first decide which host key
// machines have.
func namespaces() []string {
	return []string{contract.MachineAPINamespace, contract.ClusterAPINamespace}
}

type reconciler struct {
	Options
	// client reads Secrets of the operator's namespace through the cache and writes; live reads
	// past it.
	client  client.Client
	live    client.Reader
	events  events.EventRecorder
	watcher *watcher
	state   *State
	// rewrites is for the one worker.
	rewrites rewrites
}

var _ reconcile.Reconciler = (*reconciler)(nil)

// Reconcile writes what is missing or differs. While there is no usable key, or nobody knows the
// platform, it leaves everything as it is.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	key, err := r.PublicKey(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		logf.FromContext(ctx).V(1).Info("user data waits for the private key", "reason", problem.Reason)
		return ctrl.Result{RequeueAfter: resync}, nil // the key's watch ends the wait
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	platform, err := r.Platform(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		logf.FromContext(ctx).V(1).Info("user data waits for the cluster's platform", "reason", problem.Reason,
			"detail", problem.Detail)
		return ctrl.Result{RequeueAfter: r.recheck}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	in := userdata.Input{Platform: platform, PublicKey: key.Line}
	var problems []*contract.Problem
	var shared *hostKey
	if userdata.CarriesHostKey(platform) {
		if shared, err = r.hostKey(ctx); err != nil {
			problem, ok := contract.AsProblem(err)
			if !ok {
				return ctrl.Result{}, err
			}
			problems = append(problems, problem)
		} else {
			in.HostKey = shared.pem
		}
	}
	script, err := userdata.Render(in)
	if err != nil {
		return ctrl.Result{}, fmt.Errorf("rendering the user data: %w", err)
	}
	return r.publish(ctx, wanted{script: script, publicKeyHash: key.Hash, hostKey: shared}, problems)
}

// publish keeps the secrets of all namespaces, and does in each what it can.
func (r *reconciler) publish(ctx context.Context, want wanted, problems []*contract.Problem) (ctrl.Result, error) {
	result := ctrl.Result{RequeueAfter: resync}
	for _, namespace := range namespaces() {
		found, err := r.keep(ctx, namespace, want)
		if err != nil {
			return ctrl.Result{}, err
		}
		switch {
		case found.later:
			result.RequeueAfter = min(result.RequeueAfter, settling)
		case found.problem != nil:
			problems = append(problems, found.problem)
			result.RequeueAfter = min(result.RequeueAfter, r.recheck)
			if found.after > 0 {
				result.RequeueAfter = min(result.RequeueAfter, found.after)
			}
		case found.absent:
			logf.FromContext(ctx).V(1).Info("no user data is needed in a namespace that is not there", "namespace",
				namespace)
			result.RequeueAfter = min(result.RequeueAfter, r.recheck)
		}
		if namespace == contract.MachineAPINamespace {
			held := want.publicKeyHash
			if !found.holds {
				held = ""
			}
			r.state.hold(held)
		}
		if namespace == contract.MachineAPINamespace && want.hostKey != nil && !found.later {
			if err = r.mark(ctx, want.hostKey, found.holds); err != nil {
				return ctrl.Result{}, err
			}
		}
	}
	for _, problem := range r.state.Set(problems) {
		logf.FromContext(ctx).Info("user data is not as it must be", "reason", problem.Reason, "detail", problem.Detail)
		r.tell(corev1.EventTypeWarning, problem)
	}
	return result, nil
}
