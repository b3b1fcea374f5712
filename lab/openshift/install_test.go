package openshift_test

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/openshift"
)

func TestAPlainClusterBecomesOpenShift(t *testing.T) {
	t.Parallel()
	lab, err := cluster.Start(t.Context(), cluster.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := lab.Stop(); err != nil {
			t.Error(err)
		}
	})
	options := openshift.Options{APIServer: lab.URL, CA: lab.CAPEM}
	for range 2 {
		if err = openshift.Install(t.Context(), lab.Admin(), options); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- openshift.AssignSubnets(ctx, lab.Admin()) }()
	clients, err := kubernetes.NewForConfig(lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	subnets := map[string]bool{}
	for _, name := range []string{"win-a", "win-b"} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelOSStable: "windows"}}}
		if _, err = clients.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		err = wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
			node, err := clients.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return false, err
			}
			subnet := node.Annotations[contract.HybridSubnetAnnotation]
			subnets[subnet] = true
			return subnet != "", nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	delete(subnets, "")
	if len(subnets) != 2 {
		t.Errorf("two nodes have the subnets %v", subnets)
	}
	cancel()
	if err = <-ended; err != nil {
		t.Error(err)
	}
}
