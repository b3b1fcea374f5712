package journey_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/windows-nodes/wmco/internal/instance/journey"
)

func TestTheCacheKeepsNoImagesAndVolumesOfANode(t *testing.T) {
	t.Parallel()
	want := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "win-a", Annotations: map[string]string{"a": "b"}},
		Spec:       corev1.NodeSpec{ProviderID: "cloud://a", Taints: []corev1.Taint{{Key: "os"}}},
		Status: corev1.NodeStatus{
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			NodeInfo:   corev1.NodeSystemInfo{KubeletVersion: "v1.35.0"},
		},
	}
	node := want.DeepCopy()
	node.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}
	node.Status.Images = []corev1.ContainerImage{{Names: []string{strings.Repeat("x", 1000)}}}
	node.Status.VolumesInUse = []corev1.UniqueVolumeName{"a"}
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "a"}}
	if kept, err := journey.TrimNode(node); err != nil || !reflect.DeepEqual(kept, want) {
		t.Errorf("%v, %v", kept, err)
	}
	gone := cache.DeletedFinalStateUnknown{Key: "win-a"}
	if kept, err := journey.TrimNode(gone); err != nil || kept != any(gone) {
		t.Errorf("%v, %v", kept, err)
	}
}
