package csr

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Indexes of the cache. With them, a request of somebody else's costs one look-up, whatever the
// number of nodes and instances.
const (
	// requestsAbout finds pending requests by the node and by each address that they claim.
	requestsAbout = "csr.about"
	// instancesByNode finds instances by their node name, instancesByAddress by their addresses.
	instancesByNode    = "csr.node"
	instancesByAddress = "csr.address"
	// requestsByCredential finds approved first requests of kubelets by the id of their bootstrap
	// token, instancesByCredential whose join was given it.
	requestsByCredential  = "csr.credential"
	instancesByCredential = "csr.credential"
	// nodesByAddress finds Nodes by the names and addresses in their status.
	nodesByAddress = "csr.address"
)

type index struct {
	object client.Object
	field  string
	values client.IndexerFunc
}

func indexes(bootstrapUser string) []index {
	return []index{
		{object: &certificatesv1.CertificateSigningRequest{}, field: requestsAbout,
			values: func(o client.Object) []string {
				csr, ok := o.(*certificatesv1.CertificateSigningRequest)
				if !ok {
					return nil
				}
				claim, ours := policy.ClaimOf(csr)
				if !ours {
					return nil
				}
				return append(claim.SANs(), nodeKey(claim.NodeName))
			}},
		{object: &certificatesv1.CertificateSigningRequest{}, field: requestsByCredential,
			values: func(o client.Object) []string {
				csr, ok := o.(*certificatesv1.CertificateSigningRequest)
				id := ""
				if ok && policy.IsFirstKubeletRequest(csr, bootstrapUser) && isApproved(csr) {
					id = policy.CredentialOf(csr)
				}
				if id == "" {
					return nil
				}
				return []string{id}
			}},
		{object: &v1alpha1.WindowsInstance{}, field: instancesByCredential, values: func(o client.Object) []string {
			if instance, ok := o.(*v1alpha1.WindowsInstance); ok {
				return instance.Status.BootstrapCredentials
			}
			return nil
		}},
		{object: &v1alpha1.WindowsInstance{}, field: instancesByNode, values: func(o client.Object) []string {
			if instance, ok := o.(*v1alpha1.WindowsInstance); ok && instance.Status.NodeName != "" {
				return []string{instance.Status.NodeName}
			}
			return nil
		}},
		{object: &v1alpha1.WindowsInstance{}, field: instancesByAddress, values: func(o client.Object) []string {
			if instance, ok := o.(*v1alpha1.WindowsInstance); ok {
				return addressesOfInstance(instance)
			}
			return nil
		}},
		{object: &corev1.Node{}, field: nodesByAddress, values: func(o client.Object) []string {
			if node, ok := o.(*corev1.Node); ok {
				return addressesOfNode(node)
			}
			return nil
		}},
	}
}

func isApproved(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved
	})
}

// nodeKey tells a node's name from an address in requestsAbout: no address contains a slash. A
// request that puts one there is looked at once more.
func nodeKey(name string) string { return "node/" + name }

// addressesOfInstance are those that it was given; once its host has a node, also where it was reached
// and what it says: one that was refused a name must not keep addresses from others.
func addressesOfInstance(instance *v1alpha1.WindowsInstance) []string {
	known := policy.CSRInstanceOf(instance)
	all := append(known.Addresses, known.Reached)
	if known.NodeName == "" {
		all = known.Given
	}
	var addresses []string
	for _, address := range all {
		addresses = append(addresses, policy.AddressText(address))
	}
	return addresses
}

func addressesOfNode(node *corev1.Node) []string {
	var addresses []string
	for _, address := range node.Status.Addresses {
		addresses = append(addresses, policy.AddressText(address.Address))
	}
	return addresses
}
