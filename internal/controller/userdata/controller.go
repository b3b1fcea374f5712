package userdata

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/userdata"
)

// namespaces returns the namespaces where clouds read user data.
func namespaces() []string {
	return []string{contract.MachineAPINamespace, contract.ClusterAPINamespace}
}

type reconciler struct {
	Options
	// client reads Secrets in the operator's namespace through the cache, and writes. `live` reads from the API server.
	client client.Client
	live   client.Reader
	events events.EventRecorder
	// keyless is when the operator first found that there is no private key. It is zero while there is a private key.
	keyless time.Time
}

var _ reconcile.Reconciler = (*reconciler)(nil)

// Reconcile creates and corrects the Secrets. If the key is unusable or the platform is unknown, it changes nothing.
func (r *reconciler) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	want, problems, err := r.wanted(ctx)
	if problem, ok := contract.AsProblem(err); ok {
		logf.FromContext(ctx).V(1).Info("user data waits", "reason", problem.Reason, "detail", problem.Detail)
		return ctrl.Result{RequeueAfter: r.recheck}, nil
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	for _, namespace := range namespaces() {
		problem, err := r.keep(ctx, namespace, want)
		if err != nil {
			return ctrl.Result{}, err
		}
		if problem != nil {
			problems = append(problems, problem)
		}
	}
	settings := &corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion().String(), Kind: "WindowsMachineConfig",
		Name: contract.MachineConfigObject}
	for _, p := range r.Problems.Set("userdata", problems) {
		logf.FromContext(ctx).Info("user data is not as it must be", "reason", p.Reason, "detail", p.Detail)
		r.events.Eventf(settings, nil, corev1.EventTypeWarning, string(p.Reason), "Publish", "%v. %s", p,
			p.Reason.Fix())
	}
	return ctrl.Result{RequeueAfter: r.recheck}, nil
}

// The method `wanted` returns the desired content of the Secrets. If there is a private key, the script authorises it.
// Otherwise, the script makes the hosts join by themselves. err is a *contract.Problem if the key is unusable or the
// platform is unknown. `problems` are about the shared host key, which is optional.
func (r *reconciler) wanted(ctx context.Context) (want wanted, problems []*contract.Problem, err error) {
	key, missing := r.PublicKey(ctx)
	isMissing, err := r.isKeyMissing(ctx, missing)
	if err != nil || missing != nil && !isMissing {
		return want, nil, cmp.Or(err, missing)
	}
	platform, err := r.Platform(ctx)
	if err == nil && isMissing {
		absent, failed := r.absent(ctx, contract.MachineAPINamespace)
		if err = failed; absent || platform == contract.PlatformVSphere { // no Machine uses the user data
			err = missing
		}
	}
	if err != nil {
		return want, nil, err
	}
	want.publicKeyHash = key.Hash
	in := userdata.Input{Platform: platform, PublicKey: key.Line}
	if isMissing {
		if in.Join, err = r.Join(ctx, r.Now()); err != nil {
			return want, nil, err
		}
	} else if userdata.CarriesHostKey(platform) {
		key, err := r.hostKey(ctx)
		if p, ok := contract.AsProblem(err); ok {
			problems = append(problems, p)
		} else if err != nil {
			return want, nil, err
		} else {
			in.HostKey, want.hostKey = key.pem, key.line
		}
	}
	if want.script, err = userdata.Render(in); err != nil {
		return want, nil, fmt.Errorf("rendering the user data: %w", err)
	}
	return want, problems, nil
}

// isKeyMissing reports whether there is no private key. If the user data still authorises a key, the result is false
// for keyGrace, because a user may be replacing the Secret with the private key.
func (r *reconciler) isKeyMissing(ctx context.Context, reason error) (bool, error) {
	problem, ok := contract.AsProblem(reason)
	if !ok || problem.Reason != contract.ReasonPrivateKeyMissing {
		r.keyless = time.Time{}
		return false, nil
	}
	if r.keyless.IsZero() {
		r.keyless = r.Now()
	}
	userData, err := readUserData(ctx, r.live)
	return err == nil && (userData.Annotations[contract.PublicKeyHashAnnotation] == "" ||
		r.Now().Sub(r.keyless) >= keyGrace), err
}
