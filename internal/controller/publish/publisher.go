package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
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

// publisher keeps ConfigMap and Secret of the current revision, and the Role that lets the daemons
// read them.
type publisher struct {
	Options
	client client.Client
	source *Source
	tell   recorder
	meters *meters
	// passes is since when no pass ends well, and latest since when the Secret of what is latest is not what it
	// must be. Only one worker uses them.
	passes, latest late
}

var _ reconcile.Reconciler = (*publisher)(nil)

// Reconcile renders, publishes, and then tells the source. A repeated call writes nothing unless
// something changed.
func (p *publisher) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	again, err := p.pass(ctx)
	trouble := p.passes.lasts(p.Now(), err, contract.ReasonRevisionNotPublished)
	log := logf.FromContext(ctx)
	switch turns := p.source.setLate(trouble, p.Now()); {
	case trouble != nil:
		again = recheck
		if !turns {
			log = log.V(1)
		}
		log.Info("a revision can't be published", "detail", trouble.Detail)
	case turns:
		log.Info("revisions are published again")
	}
	if again > 0 {
		err = nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// pass does it once. It answers when to come back, and why it did not end well; without a time it is tried again less
// and less often. A ConfigMap beside the revisions that can't be written keeps nothing else back: where daemons don't
// learn where the payload is, it is sent over SSH, and CAs of the proxy that are not there yet are waited for.
func (p *publisher) pass(ctx context.Context) (again time.Duration, err error) {
	// first, because nodes that have joined may need it whatever the facts are
	unwritten := p.publishSource(ctx)
	config, err := cluster.Settings(ctx, p.client, p.Namespace)
	if err != nil {
		return 0, errors.Join(unwritten, err)
	}
	// Other controllers follow the settings even while no revision can be published.
	unwritten = errors.Join(unwritten, p.rememberSettings(ctx, config))
	facts, err := p.Facts.Facts(ctx, config.Spec)
	if err != nil {
		again, err = p.wait(ctx, fmt.Errorf("reading the cluster's facts: %w", err))
	} else {
		p.source.read(facts)
		unwritten = errors.Join(unwritten, p.keepTrustedCA(ctx, facts.WantsTrustedCA))
		again, err = p.renderAndPublish(ctx, config, facts)
	}
	if unwritten != nil && err == nil {
		again = 0
	}
	return again, errors.Join(unwritten, err)
}

// renderAndPublish publishes what nodes need by these facts, and tells the source. Its answer is that of pass.
func (p *publisher) renderAndPublish(ctx context.Context, config *v1alpha1.WindowsMachineConfig,
	facts blueprint.Facts) (again time.Duration, err error) {
	desired, err := p.render(ctx, config, facts)
	if err != nil {
		return p.wait(ctx, err)
	}
	before, _, published := p.source.Published()
	if again, err = p.publish(ctx, desired); err != nil {
		p.source.fail(nil) // hosts join at what was published before
		return again, err
	}
	late, trouble := p.publishLatest(ctx, desired)
	if trouble != nil {
		facts.Troubles = append(slices.Clone(facts.Troubles), trouble)
	}
	p.source.set(desired, facts, config.Generation)
	if !published || before.Revision != desired.Revision {
		logf.FromContext(ctx).Info("desired revision is current", "revision", desired.Revision, "kubelet",
			desired.KubeletVersion, "off", desired.Off)
	}
	for _, problem := range desired.Rejected {
		logf.FromContext(ctx).V(1).Info("a setting is not followed", "reason", problem.Reason, "detail", problem.Detail)
	}
	last := config.DeepCopy()
	last.Status.DesiredRevision, last.Status.Kubelet.AcceptedConfig = desired.Revision, nil
	if len(desired.KubeletFragment) > 0 {
		last.Status.Kubelet.AcceptedConfig = &runtime.RawExtension{Raw: desired.KubeletFragment}
	}
	if err = p.remember(ctx, last); err != nil {
		return 0, err
	}
	again = resync
	if isUnread(facts) {
		again = recheck
	}
	return policy.Soonest(again, late), nil
}

// rememberSettings keeps the spec of a WindowsMachineConfig that exists. What was published of it stays remembered.
func (p *publisher) rememberSettings(ctx context.Context, config *v1alpha1.WindowsMachineConfig) error {
	if config.ResourceVersion == "" {
		return nil
	}
	last, err := cluster.Remembered(ctx, p.client, p.Namespace)
	if err != nil || last.Name == "" { // nothing is remembered, or it is damaged
		last = config.DeepCopy()
	}
	last.Name, last.Spec = config.Name, config.Spec
	return p.remember(ctx, last)
}

// remember keeps the Secret with what was read last, from which what is absent is taken after a restart.
func (p *publisher) remember(ctx context.Context, last *v1alpha1.WindowsMachineConfig) error {
	parts, err := p.Facts.Remember(ctx)
	if err != nil {
		return err
	}
	data, err := cluster.Memory(last, parts)
	if err != nil {
		return err
	}
	// It is updated in place: while the WindowsMachineConfig is absent, others read the settings here.
	return p.keepSecret(ctx, p.secret(contract.MemorySecret, data), p.client.Update)
}

// isUnread reports whether hosts wait for something, or something could not be read that nodes can do without.
func isUnread(facts blueprint.Facts) bool {
	return len(facts.Lacks) > 0 || slices.ContainsFunc(facts.Troubles, func(p *contract.Problem) bool {
		return p.Reason == contract.ReasonClusterFactsIncomplete
	})
}

// render renders the desired state from the facts, the settings and the last published revision.
func (p *publisher) render(ctx context.Context, config *v1alpha1.WindowsMachineConfig,
	facts blueprint.Facts) (blueprint.Desired, error) {
	previous, err := p.previous(ctx, config)
	if err != nil {
		return blueprint.Desired{}, err
	}
	desired, err := blueprint.Render(blueprint.Input{
		Facts: facts, Payload: p.Payload, Spec: config.Spec, Logging: p.Logging, OperatorVersion: p.OperatorVersion,
		Salt: previous.Confidential.Salt, Previous: previous, AcceptedKubelet: previous.KubeletFragment, Now: p.Now(),
	})
	if err != nil {
		return desired, fmt.Errorf("rendering the desired state: %w", err)
	}
	return desired, nil
}

// wait shows the problems that are why nothing can be rendered, if it is problems. What was published last stays
// published: nodes that have joined go on with it.
func (p *publisher) wait(ctx context.Context, why error) (again time.Duration, err error) {
	problems := cluster.Problems(why)
	if len(problems) == 0 {
		return 0, why
	}
	p.source.fail(problems)
	log := logf.FromContext(ctx)
	for _, problem := range problems {
		log.V(1).Info("hosts can't join", "reason", problem.Reason, "detail", problem.Detail)
	}
	if desired, _, ok := p.source.Published(); ok {
		if again, err = p.publish(ctx, desired); err != nil {
			return again, err
		}
		again, _ = p.publishLatest(ctx, desired) // it is told when hosts can join again
	}
	return policy.Soonest(recheck, again), nil
}

// publish makes Secret, ConfigMap and the readers' Role as they must be, in this order: what a node is told
// to read is there and may be read. With an error it answers after what time to come back, if that is known.
func (p *publisher) publish(ctx context.Context, desired blueprint.Desired) (again time.Duration, err error) {
	if again, err = p.publishSecret(ctx, desired); err != nil {
		return again, err
	}
	if again, err = p.publishManifest(ctx, desired); err != nil {
		return again, err
	}
	return 0, p.publishRole(ctx, desired)
}
