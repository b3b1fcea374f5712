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

// Planes are control planes with what we ship, which scenes use one after the other. Between two scenes everything is
// as it was after the installation, and is checked to be.
type Planes struct {
	mu   sync.Mutex
	free []*plane
	// made counts control planes, taken scenes.
	made, taken int
}

type plane struct {
	cluster  *cluster.Cluster
	baseline *cluster.Baseline
	kind     kind
}

// kind is what a control plane can't be changed to and back.
type kind struct{ kubernetes, flannel bool }

func kindOf(o Options) kind { return kind{kubernetes: o.Kubernetes, flannel: o.flannel()} }

// lends reports whether a scene with these options may use a control plane of the pool.
func (p *Planes) lends(o Options) bool {
	return p != nil && !o.Keep && o.Bundle == "" && o.OLM == "" && o.SigningDuration == 0 && o.Computer == nil &&
		o.Namespace == contract.OperatorNamespace
}

// take gives a free control plane of the kind that the options need, or nil.
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

// give takes a control plane back once it is as it was. One that can't be restored is stopped, which is an error: the
// test before it left what nothing removes.
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

// String says how much was saved.
func (p *Planes) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d control planes for %d scenes", p.made, p.taken)
}
