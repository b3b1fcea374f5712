package journey

import corev1 "k8s.io/api/core/v1"

// TrimNode is what the cache keeps of a Node, for cache.ByObject: nobody here reads which images and
// volumes a node has, and they are the most of it. Nodes are written by patches only, which leave
// alone what neither side of a comparison has.
func TrimNode(o any) (any, error) {
	node, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	node.ManagedFields = nil
	node.Status.Images, node.Status.VolumesInUse, node.Status.VolumesAttached = nil, nil, nil
	return node, nil
}
