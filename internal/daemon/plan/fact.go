package plan

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Lookup returns the value for a key, or a Problem if the value is unknown.
type Lookup[K ~string] func(key K) (string, *contract.Problem)

// HostFacts returns a Lookup for the facts of a host. network is the name of the pods' HNS network. If `values`
// contains a fact, the Lookup returns it without reading the host. Exception: the source VIP in `values` is only a
// request. The Lookup creates the endpoint with this address if possible, and returns the endpoint's actual address.
// The Lookup reads each fact at most once. So use a Lookup for one pass only, and not concurrently.
func HostFacts(ctx context.Context, host winos.Host, network string,
	values map[contract.Fact]string) Lookup[contract.Fact] {
	type answer struct {
		value   string
		problem *contract.Problem
	}
	known := map[contract.Fact]answer{}
	for f, value := range values {
		if value != "" && f != contract.FactSourceVIP {
			known[f] = answer{value: value}
		}
	}
	return func(f contract.Fact) (string, *contract.Problem) {
		a, ok := known[f]
		if !ok {
			value, err := find(ctx, host, network, f, values[contract.FactSourceVIP])
			if err != nil {
				a.problem = problem(network, f, err)
			} else {
				a.value = value
			}
			known[f] = a
		}
		return a.value, a.problem
	}
}

func find(ctx context.Context, host winos.Host, network string, f contract.Fact, lastVIP string) (string, error) {
	if t, ok := f.Token(); ok {
		_, err := host.Files.Stat(t.Kubeconfig)
		return t.Kubeconfig, err
	}
	switch f {
	case contract.FactHostname:
		facts, err := host.System.Facts(ctx)
		return strings.ToLower(facts.Hostname), err
	case contract.FactFullHostname:
		facts, err := host.System.Facts(ctx)
		return strings.ToLower(facts.FullName), err
	case contract.FactNodeIP:
		ip, err := host.Network.NodeIP(ctx)
		return text(ip, err)
	case contract.FactSourceVIP:
		n, err := host.Network.HNSNetwork(ctx, network)
		if err != nil {
			return "", err
		}
		last, _ := netip.ParseAddr(lastVIP)
		if !n.Subnet.Contains(last) {
			last = netip.Addr{}
		}
		ip, err := host.Network.EnsureEndpoint(ctx, network, contract.SourceVIPEndpointName, last)
		return text(ip, err)
	case contract.FactHNSSubnet:
		n, err := host.Network.HNSNetwork(ctx, network)
		if err == nil && !n.Subnet.IsValid() {
			err = winos.ErrNotFound
		}
		return n.Subnet.String(), err
	case contract.FactManagementIP:
		n, err := host.Network.HNSNetwork(ctx, network)
		return text(n.ManagementIP, err)
	case contract.FactAWSHostname:
		return NewMetadata(host.Network).AWSHostname(ctx)
	case contract.FactGCPHostname:
		return NewMetadata(host.Network).GCPHostname(ctx)
	}
	return "", contract.NewProblem(contract.ReasonManifestInvalid, "fact %q is not known", f)
}

// text formats an address. If the address isn't valid, the error is winos.ErrNotFound.
func text(ip netip.Addr, err error) (string, error) {
	if err == nil && !ip.IsValid() {
		err = winos.ErrNotFound
	}
	if err != nil {
		return "", err
	}
	return ip.String(), nil
}

func problem(network string, f contract.Fact, err error) *contract.Problem {
	if p, ok := contract.AsProblem(err); ok {
		return p
	}
	if t, ok := f.Token(); ok && errors.Is(err, fs.ErrNotExist) {
		return contract.NewProblem(contract.ReasonTokenPending, "there is no token for service %s yet", t.Service)
	}
	switch {
	case f == contract.FactNodeIP:
		return contract.NewProblem(contract.ReasonNoDefaultRoute, "finding the node's address: %v", err)
	case f.Network() && errors.Is(err, winos.ErrNotFound):
		return contract.NewProblem(contract.ReasonNetworkPending, "network %s has no %s yet", network, f)
	case f.Network():
		return contract.NewProblem(contract.ReasonNetworkPending, "finding %s: %v", f, err)
	}
	return contract.NewProblem(contract.ReasonInternal, "%v", fmt.Errorf("finding %s: %w", f, err))
}

// Naming lists the facts that can determine the Node's name instead of the host name. A node keeps the values that
// these facts had at its join, because only the cloud knows some of them, and because a host that joins a domain gets a
// different full name.
func Naming() []contract.Fact {
	return []contract.Fact{contract.FactAWSHostname, contract.FactGCPHostname, contract.FactFullHostname}
}

// CheckNodeIP returns an error if the host lacks the wanted address of its Node. If the address is empty, the Node gets
// the address of the default route, so CheckNodeIP returns nil.
func CheckNodeIP(ctx context.Context, host winos.Host, wanted string) error {
	if wanted == "" {
		return nil
	}
	address, err := netip.ParseAddr(wanted)
	if err != nil {
		return contract.NewProblem(contract.ReasonNodeIPMissing, "%.40q is no address", wanted)
	}
	all, err := host.Routes.Addresses(ctx)
	if err != nil {
		return fmt.Errorf("listing the host's addresses: %w", err)
	}
	if !slices.Contains(all, address) {
		return contract.NewProblem(contract.ReasonNodeIPMissing, "the host does not have the address %s", address)
	}
	return nil
}
