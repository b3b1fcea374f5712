// Package scheme creates schemes for clients in tests. They contain Kubernetes' own types, this project's types, and
// further types that a test names.
package scheme

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

// New creates a scheme. `others` add further types to the scheme.
func New(tb testing.TB, others ...func(*runtime.Scheme) error) *runtime.Scheme {
	tb.Helper()
	scheme := runtime.NewScheme()
	for _, add := range append(others, clientgoscheme.AddToScheme, v1alpha1.AddToScheme) {
		if err := add(scheme); err != nil {
			tb.Fatal(err)
		}
	}
	return scheme
}
