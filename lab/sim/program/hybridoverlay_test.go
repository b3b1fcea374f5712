package program_test

import (
	"fmt"
	"regexp"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

func TestHybridOverlayMakesTheNetworkOfItsNodesSubnet(t *testing.T) {
	t.Parallel()
	b, admin := join(t, "overlay", program.Options{})
	ca, _ := keyPair(t)
	b.write(t, contract.PathBootstrapCA, ca)
	b.write(t, contract.DirCNIConfig+`\keep`, "")
	b.start(t, contract.ServiceHybridOverlay,
		`C:\k\hybrid-overlay-node.exe --node=`+b.node+` --bootstrap-kubeconfig=C:\k\kubeconfig `+
			`--cert-dir=C:\k\cni\config --cert-duration=24h --windows-service --logfile=C:\var\log\hybrid-overlay\hybrid-overlay.log `+
			`--k8s-apiserver=https://api-int.example.com:6443 --k8s-cacert=C:\k\bootstrap-ca.crt --hybrid-overlay-vxlan-port=9898 --loglevel=5`)
	for _, subnet := range []string{"10.132.7.0/24", "10.132.8.0/24"} {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, contract.HybridSubnetAnnotation, subnet)
		if _, err := admin.CoreV1().Nodes().Patch(t.Context(), b.node, types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the network "+subnet, func() error {
			network, err := b.Host().Network.HNSNetwork(t.Context(), contract.HybridOverlayNetwork)
			if err == nil && (network.Subnet.String() != subnet || network.ManagementIP != b.Address()) {
				err = fmt.Errorf("it is %+v", network)
			}
			return err
		})
	}
	eventually(t, "the gateway's annotation", func() error {
		node, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
		if err == nil && !regexp.MustCompile(
			`^00:15:5d(:[0-9a-f]{2}){3}$`).MatchString(node.Annotations[contract.HybridMACAnnotation]) {
			err = fmt.Errorf("annotations are %v", node.Annotations)
		}
		return err
	})
}
