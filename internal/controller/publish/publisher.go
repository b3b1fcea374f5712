package publish

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// How often facts without a watch (the bootstrap secret, the server's version) are read again: normally, and while a
// problem waits for a fix.
const (
	resync  = 10 * time.Minute
	recheck = 20 * time.Second
)

// publisher maintains the objects that nodes read.
type publisher struct {
	Options
	client client.Client
	source *Source
	tell   recorder
	meters *meters
	// passes tracks how long every pass has failed, and latest how long writing the Secret of the latest revision
	// has failed. Only one worker uses them.
	passes, latest late
}

var _ reconcile.Reconciler = (*publisher)(nil)

// Reconcile renders and publishes, and then informs the source. A repeated call writes nothing unless something
// changed.
func (p *publisher) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	again, err := p.pass(ctx)
	trouble := p.passes.lasts(p.Now(), err, contract.ReasonRevisionNotPublished)
	turns := p.source.setLate(trouble, p.Now())
	log := logf.FromContext(ctx)
	switch {
	case trouble != nil:
		if !turns {
			log = log.V(1)
		}
		log.Info("a revision can't be published", "detail", trouble.Detail)
		return ctrl.Result{RequeueAfter: recheck}, nil
	case turns:
		log.Info("revisions are published again")
	}
	if isHeld(err) {
		return ctrl.Result{RequeueAfter: terminating}, nil
	}
	return ctrl.Result{RequeueAfter: again}, err
}

// pass publishes once. It returns when to publish again, or an error that is retried with a backoff. If a ConfigMap
// other than the revision's can't be written, the revision is still published: without the payload's source, the
// payload is sent over SSH, and hosts wait for CAs of the proxy.
func (p *publisher) pass(ctx context.Context) (again time.Duration, err error) {
	// This is first, because nodes that have joined may need it even if facts are missing.
	unwritten := p.keepPayloadSource(ctx)
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
		again, err = p.publish(ctx, config, facts)
	}
	if err = errors.Join(unwritten, err); err != nil {
		return 0, err
	}
	return again, nil
}

// publish renders and publishes the revision for these facts, and informs the source.
func (p *publisher) publish(ctx context.Context, config *v1alpha1.WindowsMachineConfig,
	facts blueprint.Facts) (again time.Duration, err error) {
	desired, err := p.render(ctx, config, facts)
	if err != nil {
		return p.wait(ctx, err)
	}
	before, _, published := p.source.Published()
	if err = p.keepRevision(ctx, desired); err != nil {
		p.source.fail(nil) // hosts join at the revision that was published before
		return 0, err
	}
	again = resync
	if isUnread(facts) {
		again = recheck
	}
	err = p.keepLatest(ctx, desired)
	trouble := p.latest.lasts(p.Now(), err, contract.ReasonLatestNotPublished)
	switch {
	case trouble != nil:
		facts.Troubles, again = append(slices.Clone(facts.Troubles), trouble), recheck
	case err != nil:
		logf.FromContext(ctx).V(1).Info("the latest revision is not published yet", "detail", err.Error())
		again = terminating
	}
	p.source.set(desired, facts, config.Generation)
	log := logf.FromContext(ctx)
	if !published || before.Revision != desired.Revision {
		log.Info("desired revision is current", "revision", desired.Revision, "kubelet", desired.KubeletVersion, "off",
			desired.Off)
	}
	for _, problem := range desired.Rejected {
		log.V(1).Info("a setting is not followed", "reason", problem.Reason, "detail", problem.Detail)
	}
	last := config.DeepCopy()
	last.Status.DesiredRevision, last.Status.Kubelet.AcceptedConfig = desired.Revision, nil
	if len(desired.KubeletFragment) > 0 {
		last.Status.Kubelet.AcceptedConfig = &runtime.RawExtension{Raw: desired.KubeletFragment}
	}
	return again, p.remember(ctx, last)
}

// rememberSettings stores the spec of an existing WindowsMachineConfig, together with the remembered parts of its
// status.
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

// remember writes the Secret with the last good settings and facts. After a restart they replace absent ones.
func (p *publisher) remember(ctx context.Context, last *v1alpha1.WindowsMachineConfig) error {
	parts, err := p.Facts.Remember(ctx)
	if err != nil {
		return err
	}
	data, err := cluster.Memory(last, parts)
	if err != nil {
		return err
	}
	// It is updated in place: while the WindowsMachineConfig is absent, other controllers read the settings here.
	return ensure(ctx, p, contract.MemorySecret, inPlace, func(s *corev1.Secret) { fillSecret(s, data) })
}

// isUnread reports whether hosts wait for something, or facts that nodes can do without could not be read.
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

// wait reports why nothing can be rendered, if problems are the reason. Nodes that have joined keep the last
// published revision.
func (p *publisher) wait(ctx context.Context, why error) (again time.Duration, err error) {
	problems := cluster.Problems(why)
	if len(problems) == 0 {
		return 0, why
	}
	p.source.fail(problems)
	for _, problem := range problems {
		logf.FromContext(ctx).V(1).Info("hosts can't join", "reason", problem.Reason, "detail", problem.Detail)
	}
	desired, _, ok := p.source.Published()
	if !ok {
		return recheck, nil
	}
	if err = p.keepRevision(ctx, desired); err != nil {
		return 0, err
	}
	again = recheck
	if late := p.keepLatest(ctx, desired); late != nil { // it is reported when hosts can join again
		logf.FromContext(ctx).V(1).Info("the latest revision is not published yet", "detail", late.Error())
		again = terminating
	}
	return again, nil
}
