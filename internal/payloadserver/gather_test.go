package payloadserver_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

func TestOnlyNodesOfInstancesAreKnown(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	instance := func(namespace, name, node string) *v1alpha1.WindowsInstance {
		return &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Status: v1alpha1.WindowsInstanceStatus{NodeName: node}}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(instance("ours", "10.0.0.1", "win-1"), instance("ours", "10.0.0.2", ""),
			instance("theirs", "10.0.0.3", "win-3")).Build()
	nodes := payloadserver.Nodes{Reader: reader, Namespace: "ours"}
	for node, want := range map[string]bool{"win-1": true, "win": false, "10.0.0.1": false, "win-3": false, "": false} {
		if got, err := nodes.Known(t.Context(), node); err != nil || got != want {
			t.Errorf("%q: %v, %v", node, got, err)
		}
	}
}
