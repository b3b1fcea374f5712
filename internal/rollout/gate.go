// Package rollout answers WHOSE TURN it is to be disturbed: it gathers the fleet as the API server has it, has the policy decide, and lets
// nobody else decide until what was allowed can be seen there.
//
// Controllers ask it before they take a node to another version or delete a Machine. It decides nothing by itself, keeps nothing in memory,
// and never waits for anything but the API server: an operator that takes over reads the same and decides the same.
package rollout

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

// bound ends a decision that waits for an API server that does not answer; others wait behind it.
const bound = 30 * time.Second

// Sets tells which sets make hosts anew.
type Sets interface {
	// Sets lists them, through a cache or, live, past it. There are none while there is no API of such sets. A repeated call reads again.
	Sets(ctx context.Context, live bool) ([]policy.Set, error)
}

// Options are what a Gate works with. All are required but Sets.
type Options struct {
	// Cached reads through the manager's cache, Live past it.
	Cached, Live client.Reader
	// Sets may be nil.
	Sets Sets
	// Namespace of the operator, where the instances are.
	Namespace string
}

// Gate lets one decision through after the other. It may be used from several goroutines.
type Gate struct {
	Options
	turn chan struct{}
}

// New checks that everything is there.
func New(options Options) (*Gate, error) {
	if options.Cached == nil || options.Live == nil || options.Namespace == "" {
		return nil, errors.New("making a rollout gate: an option is missing")
	}
	return &Gate{Options: options, turn: make(chan struct{}, 1)}, nil
}

// Look is what a decision sees.
type Look struct {
	Fleet policy.Fleet
	// Instances by name.
	Instances map[string]*v1alpha1.WindowsInstance
	// MaxUnavailable is the user's budget; nil without one.
	MaxUnavailable *intstr.IntOrString
}

// Question is one decision.
type Question struct {
	// Decide says whether Act may be done, of what it is shown. It is called once or twice, and must have no other effect than to note its
	// reasons.
	Decide func(look Look) (allowed bool)
	// Act does it. What it changes must be in the API server when it returns: the next decision is taken by what is read there.
	Act func(ctx context.Context) error
	// Fresh spares the look at the cache, for who has just been told that something changed.
	Fresh bool
}

// Ask has a question decided. A no by the cache is a no: that keeps hundreds that wait from reading the whole fleet again and again. A yes
// by the cache is asked once more of the API server, with nobody else deciding meanwhile, and then acted upon.
func (g *Gate) Ask(ctx context.Context, q Question) (acted bool, err error) {
	if !q.Fresh {
		look, err := g.look(ctx, false)
		if err != nil || !q.Decide(look) {
			return false, err
		}
	}
	select {
	case g.turn <- struct{}{}:
		defer func() { <-g.turn }()
	case <-ctx.Done():
		return false, fmt.Errorf("waiting to decide: %w", ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	look, err := g.look(ctx, true)
	if err != nil || !q.Decide(look) {
		return false, err
	}
	if err = q.Act(ctx); err != nil {
		return false, err
	}
	return true, nil
}

// look gathers the fleet. Instances are read first: one that takes its place while the rest is read can't, as this has the turn; and what
// others do meanwhile is seen at least as late as it is there.
func (g *Gate) look(ctx context.Context, live bool) (Look, error) {
	reader := g.Cached
	if live {
		reader = g.Live
	}
	instances := &v1alpha1.WindowsInstanceList{}
	if err := reader.List(ctx, instances, client.InNamespace(g.Namespace)); err != nil {
		return Look{}, fmt.Errorf("listing instances: %w", err)
	}
	var sets []policy.Set
	if g.Sets != nil {
		var err error
		if sets, err = g.Sets.Sets(ctx, live); err != nil {
			return Look{}, fmt.Errorf("listing what makes hosts: %w", err)
		}
	}
	nodes := &corev1.NodeList{}
	if err := reader.List(ctx, nodes, client.MatchingLabels{contract.OSIDLabel: contract.OSIDWindows}); err != nil {
		return Look{}, fmt.Errorf("listing nodes: %w", err)
	}
	config := &v1alpha1.WindowsMachineConfig{}
	if err := g.Cached.Get(ctx, types.NamespacedName{Name: contract.MachineConfigObject}, config); err != nil && !apierrors.IsNotFound(err) {
		return Look{}, fmt.Errorf("reading the WindowsMachineConfig: %w", err)
	}
	look := Look{
		Fleet: policy.NewFleet(nodes.Items, instances.Items, sets), MaxUnavailable: config.Spec.Rollout.MaxUnavailable,
		Instances: make(map[string]*v1alpha1.WindowsInstance, len(instances.Items)),
	}
	for i := range instances.Items {
		look.Instances[instances.Items[i].Name] = &instances.Items[i]
	}
	return look, nil
}
