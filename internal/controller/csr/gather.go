package csr

import (
	"context"
	"errors"
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

// gather collects the input of a decision about a claim. It finds instances in indexes of the cache, and reads the Node
// through the parameter `reader`.
//
//	request ── claims node ──▶ instances (index, cache) ── none ──▶ nothing is read
//	                                │ some
//	                                ▼
//	                 Node (reader) + other owners of its addresses (index, cache)
func (r *Reconciler) gather(
	ctx context.Context, reader client.Reader, csr *certificatesv1.CertificateSigningRequest, claim policy.CSRClaim,
) (policy.CSRInput, error) {
	in := policy.CSRInput{CSR: csr, OperatorUser: r.options.OperatorUser, BootstrapUser: r.options.BootstrapUser}
	if claim.NodeName == "" && claim.HostID == "" {
		return in, nil // the operator's own request, without a node
	}
	known, err := r.claimed(ctx, claim)
	if err != nil || len(known) == 0 {
		return in, err
	}
	for i := range known {
		in.Instances = append(in.Instances, policy.CSRInstanceOf(&known[i]))
	}
	if claim.NodeName != "" {
		node := &corev1.Node{}
		switch err = reader.Get(ctx, types.NamespacedName{Name: claim.NodeName}, node); {
		case err == nil:
			in.Node = node
		case !apierrors.IsNotFound(err):
			return in, fmt.Errorf("reading node %s: %w", claim.NodeName, err)
		}
	}
	switch {
	case claim.Kind == policy.CSRKubeletServing:
		err = r.gatherAddresses(ctx, &in, claim)
	case policy.IsFirstKubeletRequest(csr, r.options.BootstrapUser):
		err = r.gatherCredential(ctx, &in, claim)
	default:
		err = nil
	}
	return in, err
}

// The method `claimed` lists the instances that a claim is about. The first request of a Machine's host contains the
// Machine's address, so this address also finds the instance.
func (r *Reconciler) claimed(ctx context.Context, claim policy.CSRClaim) ([]v1alpha1.WindowsInstance, error) {
	known, err := r.instances(ctx, instancesByClaim, claimKey(claim))
	if claim.Kind != policy.CSRHost {
		return known, err
	}
	for _, name := range claim.SANs() {
		more, failed := r.instances(ctx, instancesByAddress, policy.AddressText(name))
		for i := range more {
			if !slices.ContainsFunc(known, func(k v1alpha1.WindowsInstance) bool { return k.UID == more[i].UID }) {
				known = append(known, more[i])
			}
		}
		err = errors.Join(err, failed)
	}
	return known, err
}

func (r *Reconciler) instances(ctx context.Context, index, value string) ([]v1alpha1.WindowsInstance, error) {
	list := &v1alpha1.WindowsInstanceList{}
	err := r.client.List(ctx, list, client.InNamespace(r.options.Namespace), client.MatchingFields{index: value})
	if err != nil {
		return nil, fmt.Errorf("listing instances: %w", err)
	}
	return list.Items, nil
}

// gatherAddresses adds to the input the other owners of the names and addresses in a serving certificate's request.
func (r *Reconciler) gatherAddresses(ctx context.Context, in *policy.CSRInput, claim policy.CSRClaim) (err error) {
	if in.ServiceNetwork, err = r.options.ServiceNetwork(ctx); err != nil {
		return fmt.Errorf("reading the service network: %w", err)
	}
	if in.Reserved, in.ReservedNames, err = r.options.Reserved(ctx); err != nil {
		return fmt.Errorf("reading the addresses of the cluster: %w", err)
	}
	in.Elsewhere, in.Found = map[string]string{}, map[string]string{}
	in.ReportedElsewhere, in.Listed = map[string]string{}, map[string]string{}
	for _, name := range claim.SANs() {
		if err = r.gatherNodes(ctx, in, name, claim.NodeName); err != nil {
			return err
		}
		if err = r.gatherInstances(ctx, in, name, claim.NodeName); err != nil {
			return err
		}
	}
	return r.gatherPodNetworks(ctx, in, claim)
}

// gatherNodes adds to the input the other Nodes that have an address of the request. The addresses of a
// WindowsInstance's Node are weaker evidence than those of other Nodes, because its host reported them.
func (r *Reconciler) gatherNodes(ctx context.Context, in *policy.CSRInput, address, claimed string) error {
	nodes := &corev1.NodeList{}
	err := r.client.List(ctx, nodes, client.MatchingFields{nodesByAddress: policy.AddressText(address)})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		name := nodes.Items[i].Name
		owners, err := r.instances(ctx, instancesByClaim, nodeKey(name))
		switch {
		case name == claimed:
		case err != nil:
			return err
		case len(owners) > 0:
			in.ReportedElsewhere[address] = "Node " + name
		default:
			in.Elsewhere[address] = "Node " + name
		}
	}
	return nil
}

// gatherInstances adds to the input the other instances with this name or address, and how the operator knows it.
func (r *Reconciler) gatherInstances(ctx context.Context, in *policy.CSRInput, name, claimed string) error {
	address := policy.AddressText(name)
	instances, err := r.instances(ctx, instancesByAddress, address)
	for i := range instances {
		other := policy.CSRInstanceOf(&instances[i])
		reachedSince := slices.ContainsFunc(in.Instances,
			func(i policy.CSRInstance) bool { return i.ReachedAfter(other) })
		switch {
		case other.NodeName == claimed:
		case other.NodeName == "":
			in.Listed[name] = "WindowsInstance " + other.Name
		case policy.ContainsAddress(other.Given, address):
			in.Elsewhere[name] = "WindowsInstance " + other.Name
		case policy.AddressText(other.Reached) == address && !reachedSince:
			in.Found[name] = "WindowsInstance " + other.Name
		default:
			in.ReportedElsewhere[name] = "WindowsInstance " + other.Name
		}
	}
	return err
}

// gatherPodNetworks adds to the input the requested addresses that belong to a Node's pods. This is weak evidence,
// because networks may overlap. If the user or the cloud assigned such an address to a host, the host may have it.
func (r *Reconciler) gatherPodNetworks(ctx context.Context, in *policy.CSRInput, claim policy.CSRClaim) error {
	nodes := &corev1.NodeList{}
	if err := r.client.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for i := range nodes.Items {
		for _, text := range nodes.Items[i].Spec.PodCIDRs {
			prefix, _ := netip.ParsePrefix(text) // after an error, prefix is zero and contains no address
			for _, address := range claim.Addresses() {
				if prefix.Contains(address) {
					in.Found[address.String()] = "pods of Node " + nodes.Items[i].Name
				}
			}
		}
	}
	return nil
}
