package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/windows-nodes/wmco/lab/sim"
)

// nodeManager simulates the node manager of Azure. It sends the same requests as the real node manager
// (cloud-provider-azure, pkg/nodemanager/nodemanager.go). While the Node has the taint of an uninitialized cloud node,
// nodeManager sets the provider ID and the labels for zone, region, instance type and interconnect group, and removes
// the taint. Then it patches the addresses in the status.
type nodeManager struct {
	*sim.Process
	node   string
	server *access
	log    logr.Logger
}

func cloudNode(ctx context.Context, p *sim.Process) int {
	flags := newFlags("azure-cloud-node-manager")
	node := flags.String("node-name", "", "")
	kubeconfig := flags.String("kubeconfig", "", "")
	tolerate(flags, "windows-service wait-routes use-instance-metadata", "cloud-config v node-status-update-frequency")
	if err := parse(flags, p.Args[1:]); err != nil {
		return refuse(p, err)
	}
	if *node == "" {
		return refuse(p, errors.New("node-name must be specified"))
	}
	config, err := loadKubeconfig(p.Host.Files, *kubeconfig)
	if err != nil {
		return refuse(p, fmt.Errorf("building a client: %w", err))
	}
	server, err := connect(config, "azure-cloud-node-manager", p.Host.System.Now, nil)
	if err != nil {
		return refuse(p, err)
	}
	defer server.close()
	ctx, log := withLog(ctx, p.Stderr, p.Host.System.Now)
	log.Info("stand-in started", "program", "azure-cloud-node-manager", "node", *node)
	p.Running()
	m := &nodeManager{Process: p, node: *node, server: server, log: log}
	followNode(ctx, server, *node, log, m.sync)
	return 0
}

// azureInstance contains the fields of the response of Azure's metadata service that nodeManager uses.
type azureInstance struct {
	Compute struct {
		ResourceID string `json:"resourceId"`
		Location   string `json:"location"`
		Zone       string `json:"zone"`
		Size       string `json:"vmSize"`
	} `json:"compute"`
}

func (m *nodeManager) sync(ctx context.Context, seen *corev1.Node) error {
	if !tainted(seen) {
		return nil
	}
	instance, err := m.instance(ctx)
	if err != nil {
		return err
	}
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		node, err := m.server.client.CoreV1().Nodes().Get(ctx, m.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node.Spec.ProviderID == "" {
			node.Spec.ProviderID = "azure://" + instance.Compute.ResourceID
		}
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[corev1.LabelInstanceTypeStable] = instance.Compute.Size
		node.Labels[corev1.LabelTopologyZone] = instance.Compute.Location + "-" + instance.Compute.Zone
		node.Labels[corev1.LabelTopologyRegion] = instance.Compute.Location
		node.Labels["topology.kubernetes.azure.com/interconnect-group"] = "lab"
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints,
			func(t corev1.Taint) bool { return t.Key == uninitialized })
		if node, err = m.server.client.CoreV1().Nodes().Update(ctx, node, metav1.UpdateOptions{}); err != nil {
			return err
		}
		m.log.Info("initialized node with cloud provider", "node", m.node)
		return m.patchAddresses(ctx, node)
	})
}

// patchAddresses replaces the addresses in the Node's status.
func (m *nodeManager) patchAddresses(ctx context.Context, node *corev1.Node) error {
	ip, err := m.Host.Network.NodeIP(ctx)
	if err != nil {
		return fmt.Errorf("finding the address of the instance: %w", err)
	}
	addresses := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: ip.String()},
		{Type: corev1.NodeHostName, Address: m.node}, {Type: corev1.NodeInternalDNS, Address: m.node + ".lab.internal"}}
	if equality.Semantic.DeepEqual(addresses, node.Status.Addresses) {
		return nil
	}
	list := make([]any, 0, len(addresses)+1)
	for _, a := range addresses {
		list = append(list, a)
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"addresses": append(list, map[string]string{"$patch": "replace"})}})
	if err != nil {
		return fmt.Errorf("writing the node's addresses: %w", err)
	}
	_, err = m.server.client.CoreV1().Nodes().Patch(ctx, m.node, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	return err
}

// instance reads the metadata of the cloud instance.
func (m *nodeManager) instance(ctx context.Context) (instance azureInstance, err error) {
	service := netip.MustParseAddrPort("169.254.169.254:80")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return m.Host.Network.Dial(ctx, service)
		}}}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet,
		"http://"+service.String()+"/metadata/instance?api-version=2021-10-01&format=json", nil)
	if err != nil {
		return instance, err
	}
	request.Header.Set("Metadata", "true")
	response, err := client.Do(request)
	if err != nil {
		return instance, fmt.Errorf("reading the instance's metadata: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return instance, fmt.Errorf("reading the instance's metadata: %s", response.Status)
	}
	if err = json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&instance); err != nil {
		return instance, fmt.Errorf("reading the instance's metadata: %w", err)
	}
	return instance, nil
}

func tainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitialized })
}
