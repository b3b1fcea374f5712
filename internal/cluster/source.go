package cluster

import (
	"context"
	"encoding/json"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Source reads the facts of a cluster. Each kind of cluster has its own implementation.
type Source interface {
	// Facts reads all facts with each call. spec contains the names of objects that administrators choose. The returned
	// error joins the errors of all facts. Each error that an administrator can fix is a *contract.Problem (see
	// Problems). After other errors, the caller retries.
	Facts(ctx context.Context, spec v1alpha1.WindowsMachineConfigSpec) (blueprint.Facts, error)
	// Inputs returns the objects whose changes may change the facts. The result is always the same.
	Inputs() []Input
	// Remember returns the last valid value of each part of the facts, encoded as JSON. Before the first call of Facts,
	// these are the values that an earlier process wrote to the Secret contract.MemorySecret.
	Remember(ctx context.Context) (map[string]json.RawMessage, error)
}

// Input is one object that facts are read from, or all objects of a kind.
type Input struct {
	// Object has the input's type, and its namespace, if any. Without a name, the input is all objects of this kind.
	Object client.Object
	// Content returns the part of an input's object that contains facts. Two objects with equal content contain equal
	// facts. If an object contains no facts, its content is an empty string.
	Content func(object client.Object) string
}

// Problems returns the problems in an error that Facts or blueprint.Render returned, in the same order. err may be nil.
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
