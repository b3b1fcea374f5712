package publish

import (
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// How often facts that no watch tells of (the bootstrap secret, the server's version) are read
// again: while all is well, and while a problem waits for somebody to mend it.
const (
	resync  = 10 * time.Minute
	recheck = 20 * time.Second
)

// publisher keeps ConfigMap and Secret of the current version, and the Role that lets the daemons
// read them.
type publisher struct {
	Options
	client client.Client
	source *Source
	tell   recorder
	meters *meters
	// lateSince is since when the Secret of what is latest is not what it must be; zero while it is. Only one
	// worker uses it.
	lateSince time.Time
}

var _ reconcile.Reconciler = (*publisher)(nil)

// Reconcile renders, publishes, and then tells the source. A repeated call writes nothing unless
// something changed.
func (p *publisher) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	// first, because nodes that have joined may need it whatever the facts are
	if err := p.publishSource(ctx); err != nil {
		return ctrl.Result{}, err
	}
	desired, facts, err := p.render(ctx)
	if problems := cluster.Problems(err); len(problems) > 0 {
		return p.wait(ctx, problems)
	}
	if err != nil {
		return ctrl.Result{}, err
	}
	before, published := p.source.Published()
	again, err := p.publish(ctx, desired)
	if err != nil || again > 0 {
		return ctrl.Result{RequeueAfter: again}, err
	}
	late, trouble := p.publishLatest(ctx, desired)
	if trouble != nil {
		facts.Troubles = append(slices.Clone(facts.Troubles), trouble)
	}
	p.source.set(desired, facts)
	p.meters.refusals(desired.Rejected)
	if !published || before.Version != desired.Version {
		logf.FromContext(ctx).Info("desired version is current", "version", desired.Version, "kubelet",
			desired.KubeletVersion, "off", desired.Off)
	}
	for _, problem := range desired.Rejected {
		logf.FromContext(ctx).V(1).Info("a setting is not followed", "reason", problem.Reason, "detail", problem.Detail)
	}
	again = resync
	if isUnread(facts) {
		again = recheck
	}
	return ctrl.Result{RequeueAfter: policy.Soonest(again, late)}, nil
}

// isUnread reports whether hosts wait for something, or something could not be read that nodes can do without.
func isUnread(facts blueprint.Facts) bool {
	return len(facts.Lacks) > 0 || slices.ContainsFunc(facts.Troubles, func(p *contract.Problem) bool {
		return p.Reason == contract.ReasonClusterFactsIncomplete
	})
}

func (p *publisher) render(ctx context.Context) (blueprint.Desired, blueprint.Facts, error) {
	config := &v1alpha1.WindowsMachineConfig{}
	err := p.client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
	if err != nil && !apierrors.IsNotFound(err) {
		return blueprint.Desired{}, blueprint.Facts{}, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	facts, err := p.Facts.Facts(ctx, config.Spec)
	if err != nil {
		return blueprint.Desired{}, facts, fmt.Errorf("reading the cluster's facts: %w", err)
	}
	p.source.read(facts)
	if err = p.keepTrustedCA(ctx, facts.WantsTrustedCA); err != nil {
		return blueprint.Desired{}, facts, err
	}
	previous, err := p.previous(ctx, config.Status)
	if err != nil {
		return blueprint.Desired{}, facts, err
	}
	shipped, err := p.shipped(config.Spec.Payload.Image, &facts)
	if err != nil {
		return blueprint.Desired{}, facts, err
	}
	desired, err := blueprint.Render(blueprint.Input{
		Facts: facts, Payload: shipped, Spec: config.Spec, Logging: p.Logging, OperatorVersion: p.OperatorVersion,
		Salt: previous.Confidential.Salt, Previous: previous, AcceptedKubelet: previous.KubeletFragment, Now: p.Now(),
	})
	if err != nil {
		return desired, facts, fmt.Errorf("rendering the desired state: %w", err)
	}
	return desired, facts, nil
}

// wait shows the problems. What was published last stays published: nodes that have joined go on
// with it.
func (p *publisher) wait(ctx context.Context, problems []*contract.Problem) (ctrl.Result, error) {
	p.source.fail(problems)
	log := logf.FromContext(ctx)
	for _, problem := range problems {
		log.V(1).Info("hosts can't join", "reason", problem.Reason, "detail", problem.Detail)
	}
	again := time.Duration(recheck)
	if desired, ok := p.source.Published(); ok {
		left, err := p.publish(ctx, desired)
		if err != nil {
			return ctrl.Result{}, err
		}
		if left == 0 {
			left, _ = p.publishLatest(ctx, desired) // it is told when hosts can join again
		}
		again = policy.Soonest(again, left)
	}
	return ctrl.Result{RequeueAfter: again}, nil
}

// publish makes Secret, ConfigMap and the readers' Role as they must be, in this order: what a node is told
// to read is there and may be read. It answers after what time to come back, if it can't be done now.
func (p *publisher) publish(ctx context.Context, desired blueprint.Desired) (again time.Duration, err error) {
	if again, err = p.publishSecret(ctx, desired); err != nil || again > 0 {
		return again, err
	}
	if again, err = p.publishManifest(ctx, desired); err != nil || again > 0 {
		return again, err
	}
	return 0, p.publishRole(ctx, desired)
}
