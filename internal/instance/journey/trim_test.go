package journey_test

import (
	"reflect"
	"slices"
	"strconv"
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

// The cache keeps few addresses, because each one also uses an index entry.
func TestAKubeletFillsTheCacheWithFewAddresses(t *testing.T) {
	t.Parallel()
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: strings.Repeat("x", 254)},
		{Type: corev1.NodeHostName, Address: strings.Repeat("x", 253)}}
	for n := range 100_000 {
		addresses = append(addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: strconv.Itoa(n)})
	}
	want := slices.Clone(addresses[1:33])
	node := &corev1.Node{Status: corev1.NodeStatus{Addresses: addresses}}
	_, err := journey.TrimNode(node)
	if kept := node.Status.Addresses; err != nil || !slices.Equal(kept, want) || cap(kept) > 64 {
		t.Errorf("%d of %d are kept, %v", len(kept), cap(kept), err)
	}
}
