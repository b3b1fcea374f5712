package cluster

import (
	"context"
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Source gives the facts of one kind of cluster.
type Source interface {
	// Facts reads all facts; spec says which of what an administrator named is one. Its error joins
	// everything that is wrong: what an administrator can mend is a *contract.Problem (see
	// Problems), and anything else is worth another try. A repeated call reads again.
	Facts(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec) (blueprint.Facts, error)
	// Inputs are the objects whose change may change the facts. The answer is always the same.
	Inputs() []Input
	// Remember gives each part of the facts as it was read last, encoded as JSON. Before Facts was called, these are
	// the parts that an earlier process remembered.
	Remember(ctx context.Context) (map[string]json.RawMessage, error)
}

// Kind is a Source with what else differs from one kind of cluster to another.
type Kind interface {
	Source
	// Platform is where the cluster runs. It is known before the rest of the facts are; until it
	// is, the error joins problems.
	Platform(ctx context.Context) (contract.Platform, error)
}

// Input is one object that facts are read from, or all of a kind.
type Input struct {
	// Object has the type, the name unless all objects are meant, and the namespace if there is
	// one.
	Object client.Object
	// Content is the part of such an object that facts are made from. Two objects with equal
	// content give equal facts. It is empty for an object that no fact is read from.
	Content func(object client.Object) string
}

// Problems are the problems in an error of Facts or of blueprint.Render, in their order; err itself
// may be nil.
func Problems(err error) (all []*contract.Problem) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked by hand, because errors.As finds only the first
	case nil:
	case *contract.Problem:
		all = append(all, e)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, Problems(inner)...)
		}
	case interface{ Unwrap() error }:
		all = Problems(e.Unwrap())
	}
	return all
}
