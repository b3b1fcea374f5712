package winos

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/Microsoft/hcsshim"
	"github.com/Microsoft/hcsshim/hcn"
	"golang.org/x/sys/windows"
)

// hostCompartment is the host's own network compartment. Containers have other compartments.
const hostCompartment = 1

func (network) HNSNetwork(ctx context.Context, name string) (HNSNetwork, error) {
	found, err := withHNS(ctx, func() (HNSNetwork, error) {
		raw, err := hcn.GetNetworkByName(name)
		if err != nil {
			return HNSNetwork{}, err
		}
		older, err := hcsshim.GetHNSNetworkByName(name)
		if err != nil {
			return HNSNetwork{}, err
		}
		var subnets []hnsSubnet
		for _, ipam := range raw.Ipams {
			for _, subnet := range ipam.Subnets {
				subnets = append(subnets, hnsSubnet{prefix: subnet.IpAddressPrefix, policies: subnet.Policies})
			}
		}
		return describeHNS(raw.Id, raw.Name, subnets, older.ManagementIP), nil
	})
	return found, failHNS(err, "looking at HNS network %s", name)
}

// EnsureEndpoint implements Network. If the host lacks the endpoint's address, it attaches the endpoint.
func (network) EnsureEndpoint(ctx context.Context, network, endpoint string, address netip.Addr) (netip.Addr, error) {
	ip, err := withHNS(ctx, func() (netip.Addr, error) {
		on, err := hcn.GetNetworkByName(network)
		if err != nil {
			return netip.Addr{}, err
		}
		mine, taken, err := endpointOn(on.Id, endpoint, address)
		if err != nil {
			return netip.Addr{}, err
		}
		if mine == nil {
			if err = ctx.Err(); err != nil {
				return netip.Addr{}, err // the caller has given up, and may no longer want this endpoint
			}
			made := &hcsshim.HNSEndpoint{Name: endpoint, VirtualNetwork: on.Id}
			if address.IsValid() && !taken {
				made.IPAddress = address.AsSlice()
			}
			mine, err = made.Create()
			if err != nil {
				return netip.Addr{}, err
			}
		}
		// If the call took too long, return an error but keep the endpoint, so that the next call finds it. If the
		// endpoint were deleted here, each call to a slow HNS would create a new endpoint.
		if err = ctx.Err(); err != nil {
			return netip.Addr{}, err
		}
		ip, ok := netip.AddrFromSlice(mine.IPAddress)
		if ip = ip.Unmap(); !ok || !ip.Is4() {
			return netip.Addr{}, fmt.Errorf("the endpoint has no IPv4 address: %w", ErrNotFound)
		}
		cards, err := networkCards()
		if err != nil || hasAddress(cards, ip) {
			return ip, err
		}
		return ip, mine.HostAttach(hostCompartment)
	})
	return ip, failHNS(err, "making HNS endpoint %s on network %s", endpoint, network)
}

// endpointOn finds the endpoint with this name on one network. Other networks may have an endpoint of the same name. If
// this network has none, endpointOn finds a local unnamed endpoint with the address: kube-proxy creates such endpoints.
// If there is neither, `found` is nil. `taken` reports whether an endpoint on this network has the address.
func endpointOn(networkID, name string, address netip.Addr) (found *hcsshim.HNSEndpoint, taken bool, err error) {
	all, err := hcsshim.HNSListEndpointRequest()
	if err != nil {
		return nil, false, err
	}
	for i := range all {
		e := &all[i]
		if !sameID(e.VirtualNetwork, networkID) {
			continue
		}
		if e.Name == name {
			return e, true, nil
		}
		if ip, _ := netip.AddrFromSlice(e.IPAddress); address.IsValid() && ip.Unmap() == address {
			taken = true
			if e.Name == "" && !e.IsRemoteEndpoint {
				found = e
			}
		}
	}
	return found, taken, nil
}

// hasAddress reports whether the host has the address ip. A host has the addresses of its attached endpoints.
func hasAddress(cards map[uint32]card, ip netip.Addr) bool {
	for _, c := range cards {
		if slices.ContainsFunc(c.addresses, func(a address) bool { return a.Prefix.Addr() == ip }) {
			return true
		}
	}
	return false
}

func (network) RemoveHNSNetwork(ctx context.Context, name string) error {
	_, err := withHNS(ctx, func() (removed bool, err error) {
		raw, err := hcn.GetNetworkByName(name)
		if gone(err) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		endpoints, err := hcn.ListEndpointsOfNetwork(raw.Id)
		if err != nil {
			return false, err
		}
		for i := range endpoints {
			if err := ctx.Err(); err != nil {
				return false, err
			}
			if err := endpoints[i].Delete(); err != nil && !gone(err) {
				return false, err
			}
		}
		if err := ctx.Err(); err != nil {
			return false, err // the caller has given up, and may use the network now
		}
		if err := raw.Delete(); err != nil && !gone(err) {
			return false, err
		}
		return true, nil
	})
	return failHNS(err, "removing HNS network %s", name)
}

// withHNS checks that HNS exists, and then calls `work`. HNS calls don't support contexts, and may take seconds, see
// WithTimeouts.
//
// HNS has two DLLs. The newer DLL (computenetwork, package hcn) manages networks and their content. The older DLL
// (vmcompute, HNS version 1) works with the same objects. Only the older DLL can attach an endpoint to the host and
// read a network's management address.
func withHNS[T any](ctx context.Context, work func() (T, error)) (none T, err error) {
	if err = ctx.Err(); err != nil {
		return none, err
	}
	for dll, name := range map[string]string{"computenetwork.dll": "HcnEnumerateNetworks", "vmcompute.dll": "HNSCall"} {
		if _, err := function(dll, name); err != nil {
			return none, err
		}
	}
	return work()
}

func failHNS(err error, format string, args ...any) error {
	if gone(err) && !errors.Is(err, ErrNotFound) {
		err = fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	// hcsshim's errors don't unwrap. For errors of its package hcn, hcn.CheckErrorWithCode compares the code.
	for _, code := range []windows.Errno{windows.RPC_S_SERVER_UNAVAILABLE, windows.EPT_S_NOT_REGISTERED,
		windows.ERROR_SERVICE_NOT_ACTIVE,
		windows.ERROR_SERVICE_DOES_NOT_EXIST, windows.ERROR_SERVICE_DISABLED} {
		if hcn.CheckErrorWithCode(err, hcn.ErrorCode(code)) {
			err = fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
	}
	return fail(err, format, args...)
}

func gone(err error) bool { return err != nil && hcn.IsNotFoundError(err) }
