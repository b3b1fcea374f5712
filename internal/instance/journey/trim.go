package journey

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// A kubelet may list at its Node as many addresses as fit into an object, and each takes a place in an index. No
// certificate is approved for more names and addresses than maxAddresses, and no DNS name is longer than maxAddress.
const (
	maxAddresses = 32
	maxAddress   = 253
)

// TrimNode is what the cache keeps of a Node, for cache.ByObject: nobody here reads which images and
// volumes a node has, and they are the most of it. Of its addresses the first few are kept. Nodes are written by
// patches only, which leave alone what neither side of a comparison has.
func TrimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	node.ManagedFields = nil
	node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	addresses := slices.DeleteFunc(node.Status.Addresses,
		func(a corev1.NodeAddress) bool { return len(a.Address) > maxAddress })
	// a copy, which keeps no room for the rest
	node.Status.Addresses = slices.Clone(addresses[:min(len(addresses), maxAddresses)])
	return node, nil
}
