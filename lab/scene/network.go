package scene

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// externalNetwork is the name of the HNS network that a program other than the operator manages.
const externalNetwork = "Calico"

// externalDir is the directory with the files of the external network on a host.
const externalDir = `C:\etc`

// bringNetwork simulates the pods of an external network such as Calico. For each Node, it writes a CNI configuration
// to the host and creates the HNS network there. It runs until ctx ends.
func (s *Scene) bringNetwork(ctx context.Context) error {
	brought := map[string]bool{}
	_ = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		nodes := &corev1.NodeList{}
		if err := s.Client.List(ctx, nodes, client.MatchingLabels{corev1.LabelOSStable: "windows"}); err != nil {
			return false, nil //nolint:nilerr // the next round tries again
		}
		there := map[string]bool{}
		for _, node := range nodes.Items {
			there[node.Name] = brought[node.Name] || s.bringTo(node.Name) == nil
		}
		brought = there
		return false, nil
	})
	return nil
}

// bringTo creates the external network on the host of a Node.
func (s *Scene) bringTo(node string) error {
	for i, host := range s.Fleet.Hosts {
		if host.Name == node && host.Machine != nil {
			return networkOf(host, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), 0}), 24))
		}
	}
	return fmt.Errorf("no simulated host is the node %s", node)
}

func networkOf(host *fleet.Host, subnet netip.Prefix) error {
	if _, err := host.Machine.CreateHNSNetwork(winos.HNSNetwork{Name: externalNetwork, Subnet: subnet}); err != nil {
		return err
	}
	files := host.Machine.Host().Files
	if err := files.MkdirAll(contract.DirExternalCNIConfig, winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(files, contract.DirExternalCNIConfig+`\10-calico.conf`,
		strings.NewReader(`{"cniVersion":"0.3.1","name":"`+externalNetwork+`","type":"calico"}`), winos.AccessInherit)
}
