package cluster

import (
	"context"
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Source returns the facts of one kind of cluster.
type Source interface {
	// Facts reads all facts. spec contains the names of objects that administrators choose. The error of Facts joins
	// all errors. An error that an administrator can fix is a *contract.Problem (see Problems). After other errors,
	// the caller retries. A repeated call reads again.
	Facts(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec) (blueprint.Facts, error)
	// Inputs returns the objects whose changes may change the facts. The result is always the same.
	Inputs() []Input
	// Remember returns each part of the facts as it was last read, encoded as JSON. Before the first call of Facts,
	// these are the parts that an earlier process remembered.
	Remember(ctx context.Context) (map[string]json.RawMessage, error)
}

// Input is one object that facts are read from, or all objects of a kind.
type Input struct {
	// Object has the type, and the namespace if the kind is namespaced. It has the name, or no name if the input is
	// all objects of the kind.
	Object client.Object
	// Content returns the part of such an object that contains facts. Two objects with equal content have equal
	// facts. It is empty for an object without facts.
	Content func(object client.Object) string
}

// Problems returns the problems in an error of Facts or of blueprint.Render, in their order. err may be nil.
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
