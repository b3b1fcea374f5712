package journey

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// Limits for the addresses of cached Nodes. A kubelet may list any number of addresses in its Node. More or longer
// addresses would be useless: the operator approves no certificate with more than maxAddresses names and addresses, and
// no DNS name is longer than maxAddress.
const (
	maxAddresses = 32
	maxAddress   = 253
)

// TrimNode is a transform function for cache.ByObject. It removes the large parts of a cached Node that the operator
// does not read. The operator writes Nodes with patches, so the removed parts stay in the API server.
func TrimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	node.ManagedFields = nil
	node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	addresses := slices.DeleteFunc(node.Status.Addresses,
		func(a corev1.NodeAddress) bool { return len(a.Address) > maxAddress })
	// a copy, which doesn't keep the rest in memory
	node.Status.Addresses = slices.Clone(addresses[:min(len(addresses), maxAddresses)])
	return node, nil
}
