package publish

import (
	"context"
	"errors"
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
	"github.com/windows-nodes/wmco/internal/policy"
)

// resync is how often the operator reads the facts that it doesn't watch, such as the server's version. recheck applies
// while the user must fix a problem.
const (
	resync  = 10 * time.Minute
	recheck = 20 * time.Second
)

// lateAfter is how long publishing may fail before the operator reports it, and how often it retries after that.
// Failures because of a client's finalizer, or because of the API server, often end by themselves.
const lateAfter = time.Minute

// publisher maintains the objects that nodes read.
type publisher struct {
	Options
	client client.Client
	source *Source
	tell   recorder
	meters *meters
	// `failing` is when the passes began to fail, or zero. unused is when each revision became unused, by the name of
	// its objects. Only one worker uses these fields.
	failing time.Time
	unused  map[string]time.Time
}

var _ reconcile.Reconciler = (*publisher)(nil)

// Reconcile renders and publishes the desired state, updates the source, and deletes unused revisions.
func (p *publisher) Reconcile(ctx context.Context, _ ctrl.Request) (ctrl.Result, error) {
	again, err := p.pass(ctx)
	late := p.late(err)
	p.source.update(func(s *state) { s.late = late })
	if late != nil {
		logf.FromContext(ctx).Info("a revision can't be published", "detail", late.Detail)
		again, err = lateAfter, nil
	}
	next, failed := p.sweep(ctx)
	if err = errors.Join(err, failed); err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{RequeueAfter: policy.Soonest(again, next)}, nil
}

// The method `late` returns this pass's error as a problem if all passes have failed for lateAfter, and otherwise nil.
func (p *publisher) late(err error) *contract.Problem {
	if err == nil {
		p.failing = time.Time{}
		return nil
	}
	if p.failing.IsZero() {
		p.failing = p.Now()
	}
	if p.Now().Sub(p.failing) < lateAfter {
		return nil
	}
	return contract.NewProblem(contract.ReasonRevisionNotPublished, "%v", err)
}

// The method `pass` publishes once. It returns the time until the next pass, or an error that needs a retry with a
// backoff. If an object that is not part of the revision can't be written, the revision is still published. Without the
// payload's source, the operator sends the payload over SSH. Without the CAs of the proxy, hosts can't join yet.
// Without the Secret of the latest revision, daemons read the revision by name.
func (p *publisher) pass(ctx context.Context) (again time.Duration, err error) {
	// Write the payload's source first, because nodes that have joined may need it even if facts are missing.
	unwritten := p.keepPayloadSource(ctx)
	config, err := cluster.Settings(ctx, p.client, p.Namespace)
	if err != nil {
		return 0, errors.Join(unwritten, err)
	}
	// Remember the settings even if no revision can be published, because other controllers use them.
	unwritten = errors.Join(unwritten, p.rememberSettings(ctx, config))
	var desired blueprint.Desired
	facts, err := p.Facts.Facts(ctx, config.Spec)
	if err == nil {
		p.source.update(func(s *state) { s.read = &facts })
		unwritten = errors.Join(unwritten, p.keepTrustedCA(ctx, facts.InjectsCA))
		desired, err = p.render(ctx, config, facts)
	}
	problems := cluster.Problems(err)
	if err != nil && len(problems) == 0 {
		return 0, errors.Join(unwritten, err)
	}
	p.source.update(func(s *state) { s.problems = problems })
	if err != nil {
		return recheck, errors.Join(unwritten, p.wait(ctx, problems))
	}
	again, err = p.publish(ctx, config, facts, desired)
	return again, errors.Join(unwritten, err)
}

func (p *publisher) publish(ctx context.Context, config *v1alpha1.WindowsMachineConfig, facts blueprint.Facts,
	desired blueprint.Desired) (again time.Duration, err error) {
	if err = p.keepRevision(ctx, desired.Content); err != nil {
		return 0, err // hosts still join at the revision that was published before
	}
	unwritten := p.keepLatest(ctx, desired.Content)
	before, _, published := p.source.Published()
	p.source.update(func(s *state) {
		s.published, s.desired, s.facts, s.generation = true, desired, facts, config.Generation
	})
	log := logf.FromContext(ctx)
	if !published || before.Revision != desired.Revision {
		log.Info("desired revision is current", "revision", desired.Revision, "kubelet", desired.KubeletVersion, "off",
			desired.Off)
	}
	for _, problem := range desired.Rejected {
		log.V(1).Info("a setting is ignored", "reason", problem.Reason, "detail", problem.Detail)
	}
	last := config.DeepCopy()
	last.Status.DesiredRevision, last.Status.Kubelet.AcceptedConfig = desired.Revision, nil
	if len(desired.KubeletFragment) > 0 {
		last.Status.Kubelet.AcceptedConfig = &runtime.RawExtension{Raw: desired.KubeletFragment}
	}
	again = resync
	if isUnread(facts) {
		again = recheck
	}
	return again, errors.Join(unwritten, p.remember(ctx, last))
}

// rememberSettings stores the spec of an existing WindowsMachineConfig, and keeps the stored parts of its status.
func (p *publisher) rememberSettings(ctx context.Context, config *v1alpha1.WindowsMachineConfig) error {
	if config.ResourceVersion == "" {
		return nil
	}
	last, err := cluster.Remembered(ctx, p.client, p.Namespace)
	if err != nil || last.Name == "" { // the Secret is absent or damaged
		last = config.DeepCopy()
	}
	last.Name, last.Spec = config.Name, config.Spec
	return p.remember(ctx, last)
}

// remember writes the Secret with the last good settings and facts. When the operator starts, it uses this Secret
// instead of missing objects with settings or facts.
func (p *publisher) remember(ctx context.Context, last *v1alpha1.WindowsMachineConfig) error {
	parts, err := p.Facts.Remember(ctx)
	if err != nil {
		return err
	}
	data, err := cluster.Memory(last, parts)
	if err != nil {
		return err
	}
	// Update the Secret in place, because it must always exist: while the WindowsMachineConfig doesn't exist, other
	// controllers read the settings from this Secret.
	return ensure(ctx, p, contract.MemorySecret, func(s *corev1.Secret) { fillSecret(s, data) })
}

// isUnread reports whether a missing fact prevents hosts from joining, or whether optional facts could not be read.
func isUnread(facts blueprint.Facts) bool {
	return len(facts.Lacks) > 0 || slices.ContainsFunc(facts.Troubles, func(p *contract.Problem) bool {
		return p.Reason == contract.ReasonClusterFactsIncomplete
	})
}

func (p *publisher) render(ctx context.Context, config *v1alpha1.WindowsMachineConfig,
	facts blueprint.Facts) (blueprint.Desired, error) {
	previous, err := p.previous(ctx, config)
	if err != nil {
		return blueprint.Desired{}, err
	}
	return blueprint.Render(blueprint.Input{
		Facts: facts, Payload: p.Payload, Spec: config.Spec, Logging: p.Logging, OperatorVersion: p.OperatorVersion,
		Salt: previous.Confidential.Salt, Previous: previous, AcceptedKubelet: previous.KubeletFragment, Now: p.Now(),
	})
}

// wait handles a pass in which nothing can be rendered: it maintains the last revision, because joined nodes use it.
func (p *publisher) wait(ctx context.Context, problems []*contract.Problem) error {
	for _, problem := range problems {
		logf.FromContext(ctx).V(1).Info("hosts can't join", "reason", problem.Reason, "detail", problem.Detail)
	}
	desired, _, ok := p.source.Published()
	if !ok {
		return nil
	}
	return errors.Join(p.keepRevision(ctx, desired.Content), p.keepLatest(ctx, desired.Content))
}
