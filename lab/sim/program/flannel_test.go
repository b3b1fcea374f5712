package program_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

func TestFlanneldMakesTheNetworkOfItsNodesPartAndEndsWithItsWrapper(t *testing.T) {
	t.Parallel()
	c, admin := startLab(t)
	b := joinOn(t, c, admin, unique("flannel"), program.Options{})
	// This test uses an administrator's rights. The tests of the manifests check flannel's own rights.
	mighty, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	b.write(t, contract.PathFlannelKubeconfig, string(mighty))
	b.write(t, contract.PathFlannelConfig, `{"Network": "10.244.0.0/16", "Backend": {"Type": "vxlan", "VNI": 4097}}`)
	command := func(node string) string {
		return `C:\k\service-wrapper.exe --log-file=C:\var\log\flanneld\flanneld.log --env=NODE_NAME=` + node +
			` C:\k\flanneld.exe --kube-subnet-mgr --kubeconfig-file=C:\k\wicd-certs\flanneld-kubeconfig ` +
			`--net-config-path=C:\k\flannel\net-conf.json --subnet-file=C:\k\flannel\subnet.env --iface=127.0.0.1 ` +
			`--set-node-network-unavailable=false -v=4`
	}
	if _, err := admin.CoreV1().Nodes().Patch(t.Context(), b.node, types.MergePatchType,
		[]byte(`{"spec": {"podCIDR": "10.244.3.0/24", "podCIDRs": ["10.244.3.0/24"]}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	b.start(t, contract.ServiceFlannel, command(b.node))
	eventually(t, "the network", func() error {
		network, err := b.Host().Network.HNSNetwork(t.Context(), "flannel.4097")
		if err == nil && network.Subnet.String() != "10.244.3.0/24" {
			err = fmt.Errorf("the network is %+v", network)
		}
		return err
	})
	eventually(t, "the lease", func() error {
		node, err := admin.CoreV1().Nodes().Get(t.Context(), b.node, metav1.GetOptions{})
		if data := node.Annotations["flannel.alpha.coreos.com/backend-data"]; err == nil &&
			!strings.Contains(data, `"VtepMAC":"00:15:5d`) {
			err = fmt.Errorf("the subnet file is %s", data)
		}
		return err
	})
	eventually(t, "the subnet's file", func() error {
		_, err := winos.ReadFile(b.Host().Files, contract.PathFlannelSubnet)
		return err
	})
	running := func() int {
		all, err := b.Host().Programs.Processes(t.Context(), contract.PathFlannel)
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := running(); n != 1 {
		t.Errorf("flanneld has %d processes, want 1", n)
	}
	if err := b.Host().Services.Stop(t.Context(), contract.ServiceFlannel); err != nil {
		t.Fatal(err)
	}
	if n := running(); n != 0 {
		t.Errorf("after its service has stopped, flanneld has %d processes", n)
	}
}
