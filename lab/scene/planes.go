package scene

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// Planes is a pool of control planes with the operator's manifests that scenes use one after the other. Between two
// scenes, the state after the installation is restored and verified.
type Planes struct {
	mu   sync.Mutex
	free []*plane
	// made counts control planes. taken counts scenes.
	made, taken int
}

type plane struct {
	cluster  *cluster.Cluster
	baseline *cluster.Baseline
	kind     kind
}

// kind contains the properties of a control plane that can't be changed and restored.
type kind struct{ kubernetes, flannel bool }

func kindOf(o Options) kind { return kind{kubernetes: o.Kubernetes, flannel: o.flannel()} }

// lends reports whether a scene with these options can use a control plane of the pool.
func (p *Planes) lends(o Options) bool {
	return p != nil && !o.Keep && o.Bundle == "" && o.OLM == "" && o.SigningDuration == 0 && o.Computer == nil &&
		o.Namespace == contract.OperatorNamespace
}

// take returns a free control plane of the kind that the options need, or nil.
func (p *Planes) take(o Options) *plane {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken++
	i := slices.IndexFunc(p.free, func(one *plane) bool { return one.kind == kindOf(o) })
	if i < 0 {
		p.made++
		return nil
	}
	one := p.free[i]
	p.free = slices.Delete(p.free, i, i+1)
	return one
}

// give returns a control plane to the pool after restoring it. If the control plane can't be restored, give stops it
// and returns an error: the test left objects that can't be removed.
func (p *Planes) give(ctx context.Context, one *plane) error {
	err := one.cluster.StopScheduler()
	if err == nil {
		err = one.baseline.Restore(ctx)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("clearing the control plane for the next scene: %w", err), one.cluster.Stop())
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, one)
	return nil
}

// Close stops the control planes.
func (p *Planes) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []error
	for _, one := range p.free {
		all = append(all, one.cluster.Stop())
	}
	p.free = nil
	return errors.Join(all...)
}

// String returns how many control planes served how many scenes.
func (p *Planes) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d control planes for %d scenes", p.made, p.taken)
}
