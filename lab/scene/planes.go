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

// Planes is a pool of control planes. Scenes use these control planes one after the other, because starting a control
// plane takes long. After each scene, the pool restores the state that a control plane has after the installation, and
// verifies this state.
type Planes struct {
	mu   sync.Mutex
	free []*plane
	// made is the number of control planes that were started. taken is the number of scenes that used one.
	made, taken int
}

type plane struct {
	cluster  *cluster.Cluster
	baseline *cluster.Baseline
	kind     kind
}

// kind contains the properties of a control plane that never change, even when it is restored.
type kind struct{ kubernetes, flannel bool }

func kindOf(o Options) kind { return kind{kubernetes: o.Kubernetes, flannel: o.flannel()} }

// The method lends reports whether a scene with these options can use a control plane of the pool.
func (p *Planes) lends(o Options) bool {
	return p != nil && !o.Keep && o.Bundle == "" && o.OLM == "" && o.SigningDuration == 0 && o.Computer == nil &&
		o.Namespace == contract.OperatorNamespace
}

// take returns a free control plane for a scene with these options. It returns nil if there is none.
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

// give restores a control plane and returns it to the pool. If it can't be restored, give stops the control plane and
// returns an error. The error means that the test left objects that can't be deleted.
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

// String says how many control planes were started and how many scenes used them.
func (p *Planes) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Sprintf("%d control planes for %d scenes", p.made, p.taken)
}
