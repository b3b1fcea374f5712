package csr

import (
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

// Indexes of the cache. They find the objects for a request without a search through all nodes and instances.
const (
	// requestsAbout finds pending requests by the node and by each address that they ask for.
	requestsAbout = "csr.about"
	// instancesByClaim finds instances by their node name and HostID, and instancesByAddress by their addresses.
	instancesByClaim   = "csr.claim"
	instancesByAddress = "csr.address"
	// requestsByCredential finds approved first requests of kubelets by the id of their bootstrap token.
	// instancesByCredential finds the instance by the id of a token that was created for its join.
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

func indexOf[T client.Object](object T, field string, values func(T) []string) index {
	return index{object, field, func(o client.Object) []string {
		if typed, ok := o.(T); ok {
			return slices.DeleteFunc(slices.Clone(values(typed)), func(value string) bool { return value == "" })
		}
		return nil
	}}
}

func indexes(bootstrapUser string) []index {
	return []index{
		indexOf(&certificatesv1.CertificateSigningRequest{}, requestsAbout, claimed),
		indexOf(&certificatesv1.CertificateSigningRequest{}, requestsByCredential,
			func(csr *certificatesv1.CertificateSigningRequest) []string {
				if policy.IsFirstKubeletRequest(csr, bootstrapUser) && isApproved(csr) {
					return []string{policy.CredentialOf(csr)}
				}
				return nil
			}),
		indexOf(&v1alpha1.WindowsInstance{}, instancesByCredential,
			func(i *v1alpha1.WindowsInstance) []string { return i.Status.BootstrapCredentials }),
		indexOf(&v1alpha1.WindowsInstance{}, instancesByClaim,
			func(i *v1alpha1.WindowsInstance) []string {
				return []string{nodeKey(i.Status.NodeName), hostKey(policy.HostID(i))}
			}),
		indexOf(&v1alpha1.WindowsInstance{}, instancesByAddress, addressesOfInstance),
		indexOf(&corev1.Node{}, nodesByAddress, addressesOfNode),
	}
}

func isApproved(csr *certificatesv1.CertificateSigningRequest) bool {
	return slices.ContainsFunc(csr.Status.Conditions, func(c certificatesv1.CertificateSigningRequestCondition) bool {
		return c.Type == certificatesv1.CertificateApproved
	})
}

// The function `claimed` lists the node and the addresses that a pending request asks for, as keys of requestsAbout.
func claimed(csr *certificatesv1.CertificateSigningRequest) []string {
	claim, ours := policy.ClaimOf(csr)
	if !ours {
		return nil
	}
	return append(claim.SANs(), claimKey(claim))
}

// nodeKey returns the key of a node in requestsAbout and instancesByClaim. If an address contains a slash and equals
// such a key, the operator checks the request once more than needed.
func nodeKey(name string) string { return "node/" + name }

// hostKey returns the key of a host that joins by itself, in the same indexes.
func hostKey(id string) string { return "host/" + id }

func claimKey(claim policy.CSRClaim) string {
	if claim.Kind == policy.CSRHost {
		return hostKey(claim.HostID)
	}
	return nodeKey(claim.NodeName)
}

// addressesOfInstance lists the configured addresses of an instance. If the host has a node, it also lists the address
// where the operator reached the host, and the addresses that the host reports. Without a node, it lists only the
// addresses from the user or the cloud: a host that the operator refused must not block the addresses of other hosts.
func addressesOfInstance(instance *v1alpha1.WindowsInstance) []string {
	known := policy.CSRInstanceOf(instance)
	all := append(known.Addresses, known.Reached)
	if known.NodeName == "" {
		all = known.Given
	}
	addresses := make([]string, len(all))
	for i, address := range all {
		addresses[i] = policy.AddressText(address)
	}
	return addresses
}

func addressesOfNode(node *corev1.Node) []string {
	addresses := make([]string, len(node.Status.Addresses))
	for i, address := range node.Status.Addresses {
		addresses[i] = policy.AddressText(address.Address)
	}
	return addresses
}
