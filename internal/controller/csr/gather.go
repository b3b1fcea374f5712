package csr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

// gather collects what a decision about a claim depends on. Which instances a claim is about, and
// who else has its addresses, only the indexes of the cache tell; the instances and the Node
// themselves are read through reader.
//
//	request ── claims node ──▶ instances (index, cache) ── none ──▶ nothing is asked
//	                                │ some
//	                                ▼
//	                 instances, Node (reader) + who else has its addresses (index, cache)
func (r *Reconciler) gather(
	ctx context.Context, reader client.Reader, csr *certificatesv1.CertificateSigningRequest, claim policy.CSRClaim,
) (policy.CSRInput, error) {
	in := policy.CSRInput{CSR: csr, OperatorUser: r.options.OperatorUser, BootstrapUser: r.options.BootstrapUser}
	if claim.NodeName == "" {
		return in, nil // a request of our own for nobody
	}
	list := &v1alpha1.WindowsInstanceList{}
	err := r.client.List(ctx, list, client.InNamespace(r.options.Namespace),
		client.MatchingFields{instancesByNode: claim.NodeName})
	if err != nil {
		return in, fmt.Errorf("listing instances: %w", err)
	}
	if len(list.Items) == 0 {
		return in, nil
	}
	for i := range list.Items {
		instance := &v1alpha1.WindowsInstance{}
		err = reader.Get(ctx, client.ObjectKeyFromObject(&list.Items[i]), instance)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return in, fmt.Errorf("reading instance %s: %w", list.Items[i].Name, err)
		}
		in.Instances = append(in.Instances, policy.CSRInstanceOf(instance))
	}
	node := &corev1.Node{}
	err = reader.Get(ctx, types.NamespacedName{Name: claim.NodeName}, node)
	if client.IgnoreNotFound(err) != nil {
		return in, fmt.Errorf("reading node %s: %w", claim.NodeName, err)
	}
	if err == nil {
		in.Node = node
	}
	if claim.Kind == policy.CSRKubeletServing {
		return r.gatherAddresses(ctx, in, claim)
	}
	if policy.IsFirstKubeletRequest(csr, r.options.BootstrapUser) {
		return r.gatherCredential(ctx, in, claim)
	}
	return in, nil
}

// gatherAddresses adds who else has the names and addresses of a serving request.
func (r *Reconciler) gatherAddresses(ctx context.Context, in policy.CSRInput, claim policy.CSRClaim) (policy.CSRInput,
	error) {
	var err error
	if in.ServiceNetwork, err = r.options.ServiceNetwork(ctx); err != nil {
		return in, fmt.Errorf("reading the service network: %w", err)
	}
	if in.Reserved, in.ReservedNames, err = r.options.Reserved(ctx); err != nil {
		return in, fmt.Errorf("reading the addresses of the cluster: %w", err)
	}
	in.Elsewhere, in.Found = map[string]string{}, map[string]string{}
	in.Said, in.Listed = map[string]string{}, map[string]string{}
	for _, name := range claim.SANs() {
		address := policy.AddressText(name)
		nodes := &corev1.NodeList{}
		if err = r.client.List(ctx, nodes, client.MatchingFields{nodesByAddress: address}); err != nil {
			return in, fmt.Errorf("listing nodes: %w", err)
		}
		for i := range nodes.Items {
			if err = r.noteNode(ctx, &in, name, nodes.Items[i].Name, claim.NodeName); err != nil {
				return in, err
			}
		}
		instances := &v1alpha1.WindowsInstanceList{}
		err = r.client.List(ctx, instances, client.InNamespace(r.options.Namespace),
			client.MatchingFields{instancesByAddress: address})
		if err != nil {
			return in, fmt.Errorf("listing instances: %w", err)
		}
		for i := range instances.Items {
			other := policy.CSRInstanceOf(&instances.Items[i])
			switch {
			case other.NodeName == claim.NodeName:
			case other.NodeName == "":
				in.Listed[name] = "WindowsInstance " + other.Name
			case policy.ContainsAddress(other.Given, address):
				in.Elsewhere[name] = "WindowsInstance " + other.Name
			case policy.AddressText(other.Reached) == address && !reachedSince(in.Instances, other):
				in.Found[name] = "WindowsInstance " + other.Name
			default:
				in.Said[name] = "WindowsInstance " + other.Name
			}
		}
	}
	return in, r.gatherPodNetworks(ctx, in, claim)
}

// reachedSince says whether one of the instances was reached where another was before.
func reachedSince(instances []policy.CSRInstance, other policy.CSRInstance) bool {
	return slices.ContainsFunc(instances, func(i policy.CSRInstance) bool { return i.ReachedAfter(other) })
}

// gatherPodNetworks notes addresses that a Node gives its pods. A host may have one all the same when
// the user or the cloud says so: networks may overlap.
func (r *Reconciler) gatherPodNetworks(ctx context.Context, in policy.CSRInput, claim policy.CSRClaim) error {
	addresses := claim.Addresses()
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, text := range nodes.Items[i].Spec.PodCIDRs {
			prefix, err := netip.ParsePrefix(text)
			if err != nil {
				continue
			}
			for _, address := range addresses {
				if prefix.Contains(address) {
					in.Found[address.String()] = "pods of Node " + nodes.Items[i].Name
				}
			}
		}
	}
	return nil
}

// noteNode notes that a Node other than the claimed one lists an address. Nodes of our own hosts
// say that of themselves.
func (r *Reconciler) noteNode(ctx context.Context, in *policy.CSRInput, address, name, claimed string) error {
	if name == claimed {
		return nil
	}
	owners := &v1alpha1.WindowsInstanceList{}
	err := r.client.List(ctx, owners, client.InNamespace(r.options.Namespace),
		client.MatchingFields{instancesByNode: name})
	if err != nil {
		return fmt.Errorf("listing instances: %w", err)
	}
	if len(owners.Items) > 0 {
		in.Said[address] = "Node " + name
	} else {
		in.Elsewhere[address] = "Node " + name
	}
	return nil
}
