package openshift

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/windows-nodes/wmco/internal/contract"
)

// AssignSubnets simulates the control plane of the network plugin: each Windows node gets a subnet of HybridNetwork
// as an annotation. A node keeps its subnet until it is deleted. AssignSubnets runs until ctx ends.
func AssignSubnets(ctx context.Context, config *rest.Config) error {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	selector := func(o *metav1.ListOptions) { o.LabelSelector = corev1.LabelOSStable + "=windows" }
	watch := cache.NewFilteredListWatchFromClient(clients.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, selector)
	pool := &pool{taken: map[netip.Prefix]string{}, written: map[types.UID]bool{}}
	give := func(object any) {
		if node, ok := object.(*corev1.Node); ok {
			pool.give(ctx, clients, node)
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: watch, ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    give,
			UpdateFunc: func(_, object any) { give(object) },
			DeleteFunc: func(object any) {
				if node, ok := object.(*corev1.Node); ok {
					pool.free(node.Name)
				}
			},
		},
	})
	informer.RunWithContext(ctx)
	return nil
}

// pool holds the assigned subnets, each with its node. Only the informer's goroutine uses it.
type pool struct {
	taken map[netip.Prefix]string
	// written holds the Nodes that have their annotation. Events that are older than the annotation still arrive later.
	written map[types.UID]bool
}

func (p *pool) give(ctx context.Context, clients kubernetes.Interface, node *corev1.Node) {
	if had, err := netip.ParsePrefix(node.Annotations[contract.HybridSubnetAnnotation]); err == nil {
		p.taken[had] = node.Name
		return
	}
	if p.written[node.UID] {
		return
	}
	subnet := p.next(node.Name)
	patch, err := json.Marshal(
		map[string]any{
			"metadata": map[string]any{
				"annotations": map[string]string{contract.HybridSubnetAnnotation: subnet.String()}}})
	if err != nil {
		return
	}
	if _, err = clients.CoreV1().Nodes().Patch(ctx, node.Name, types.MergePatchType, patch,
		metav1.PatchOptions{}); err != nil {
		delete(p.taken, subnet) // try again at the node's next change
		return
	}
	p.written[node.UID] = true
}

// next returns the first free subnet.
func (p *pool) next(name string) netip.Prefix {
	subnet := netip.PrefixFrom(netip.MustParsePrefix(HybridNetwork).Addr(), 24)
	for p.taken[subnet] != "" && p.taken[subnet] != name {
		address := subnet.Addr().As4()
		if address[2]++; address[2] == 0 {
			address[1]++
		}
		subnet = netip.PrefixFrom(netip.AddrFrom4(address), 24)
	}
	p.taken[subnet] = name
	return subnet
}

func (p *pool) free(name string) {
	for subnet, owner := range p.taken {
		if owner == name {
			delete(p.taken, subnet)
		}
	}
}
