package hns

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
)

// Service is the simulated service. It can be used concurrently.
type Service struct {
	path       string
	management func() (netip.Addr, error)

	mu    sync.Mutex
	state state
}

// state is the state of HNS. It survives a boot, except networks that are created as non-persistent.
type state struct {
	Networks      []network
	Endpoints     []endpoint
	LoadBalancers []LoadBalancer
}

type network struct {
	ID, Name, Type string
	Subnet         netip.Prefix
	ManagementIP   netip.Addr
	// Tagged means that the creator of the network specified its VNI.
	Tagged bool
	VNI    uint32
	// Fleeting means that the network doesn't survive a boot.
	Fleeting bool
	// RouterMAC is the address of the distributed router of the network.
	RouterMAC string
	// Policies are the policies that were added to the network. Each is stored as it was sent.
	Policies []json.RawMessage
}

func (n network) overlay() bool { return strings.EqualFold(n.Type, "Overlay") }

type endpoint struct {
	ID, Name, Network string
	Address           netip.Addr
	Attached          bool
	// MAC, Flags and Policies are stored as they were sent.
	MAC      string
	Flags    uint32
	Policies []json.RawMessage
}

// Options configure a service.
type Options struct {
	// Path is the file for networks and endpoints.
	Path string
	// Management returns the address of the host's network card. New networks get it as their management address.
	Management func() (netip.Addr, error)
}

// New starts a service with the content of its file.
func New(options Options) (*Service, error) {
	s := &Service{path: options.Path, management: options.Management}
	content, err := os.ReadFile(options.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the state of HNS: %w", err)
	}
	if err = json.Unmarshal(content, &s.state); err != nil {
		return nil, fmt.Errorf("reading the state of HNS: %w", err)
	}
	return s, nil
}

// save writes the persistent state. The caller holds the lock.
func (s *Service) save() error {
	var lasting state
	for _, n := range s.state.Networks {
		if !n.Fleeting {
			lasting.Networks = append(lasting.Networks, n)
		}
	}
	for _, e := range s.state.Endpoints {
		if on, found := s.network(e.Network); found && !on.Fleeting {
			lasting.Endpoints = append(lasting.Endpoints, e)
		}
	}
	lasting.LoadBalancers = s.state.LoadBalancers
	content, err := json.Marshal(lasting)
	if err != nil {
		return fmt.Errorf("writing the state of HNS: %w", err)
	}
	if err = os.WriteFile(s.path, content, 0o600); err != nil {
		return fmt.Errorf("writing the state of HNS: %w", err)
	}
	return nil
}

func (s *Service) network(id string) (network, bool) {
	at := slices.IndexFunc(s.state.Networks, func(n network) bool { return sameID(n.ID, id) })
	if at < 0 {
		return network{}, false
	}
	return s.state.Networks[at], true
}

func (s *Service) endpoint(id string) (at int, found bool) {
	at = slices.IndexFunc(s.state.Endpoints, func(e endpoint) bool { return sameID(e.ID, id) })
	return at, at >= 0
}

// Windows accepts VNIs in this range, see
// https://learn.microsoft.com/en-us/powershell/module/hyper-v/set-vmnetworkadapter (VirtualSubnetId).
const lowestVNI, highestVNI = 4096, 16_777_214

// refuses(n) returns the reason why the network n can't be created. Nobody has tested which code Windows returns for a
// VNI that is too low, or whether Windows accepts the VNI or the addresses of an existing network. This service refuses
// them, so that tests show whether the product works even if Windows refuses them.
func (s *Service) refuses(n network) error {
	if !n.Subnet.IsValid() || !n.Subnet.Addr().Is4() {
		return refusal{invalidNetwork, "network " + n.Name + " has no IPv4 subnet"}
	}
	if n.Tagged && (n.VNI < lowestVNI || n.VNI > highestVNI) {
		return refusal{invalidPolicy, fmt.Sprintf("network %s has VNI %d, which is not from %d to %d", n.Name, n.VNI,
			lowestVNI, highestVNI)}
	}
	for _, other := range s.state.Networks {
		switch {
		case other.Name == n.Name:
			return refusal{networkExists, "A network with this name already exists."}
		case n.Tagged && other.VNI == n.VNI:
			return refusal{invalidPolicy, fmt.Sprintf("network %s also has VNI %d", other.Name, n.VNI)}
		case other.Subnet.Overlaps(n.Subnet):
			return refusal{invalidSubnet, fmt.Sprintf("network %s has addresses of %s", other.Name, n.Subnet)}
		}
	}
	return nil
}

// addNetwork creates a network.
func (s *Service) addNetwork(n network) (network, error) {
	err := s.refuses(n)
	if err != nil {
		return n, err
	}
	if n.ManagementIP, err = s.management(); err != nil {
		return n, fmt.Errorf("finding the management address: %w", err)
	}
	n.ID, n.Subnet = newID(), n.Subnet.Masked()
	n.RouterMAC = "00-15-5D-" + strings.ToUpper(n.ID[0:2]+"-"+n.ID[2:4]+"-"+n.ID[4:6])
	s.state.Networks = append(s.state.Networks, n)
	return n, s.save()
}

// changePolicies adds policies to a network, or removes policies that were added before.
func (s *Service) changePolicies(id string, add bool, policies []json.RawMessage) error {
	at := slices.IndexFunc(s.state.Networks, func(n network) bool { return sameID(n.ID, id) })
	if at < 0 {
		return refusal{networkNotFound, "the network was not found"}
	}
	have := slices.Clone(s.state.Networks[at].Policies)
	for _, policy := range policies {
		if add {
			have = append(have, policy)
			continue
		}
		i := slices.IndexFunc(have, func(p json.RawMessage) bool { return string(p) == string(policy) })
		if i < 0 {
			return refusal{policyNotFound, "the policy was not found"}
		}
		have = slices.Delete(have, i, i+1)
	}
	s.state.Networks[at].Policies = have
	return s.save()
}

// removeNetwork removes a network and its endpoints.
func (s *Service) removeNetwork(id string) (found bool, err error) {
	if _, found = s.network(id); !found {
		return false, nil
	}
	s.state.Networks = slices.DeleteFunc(s.state.Networks, func(n network) bool { return sameID(n.ID, id) })
	s.state.Endpoints = slices.DeleteFunc(s.state.Endpoints, func(e endpoint) bool { return sameID(e.Network, id) })
	return true, s.save()
}

// addEndpoint creates an endpoint. If it has no address, it gets the first free address of its network. The first two
// addresses of each network belong to its gateway. addEndpoint refuses an address that another endpoint has. Windows
// reportedly accepts such an address sometimes, but the product must not depend on that.
func (s *Service) addEndpoint(e endpoint) (endpoint, error) {
	on, found := s.network(e.Network)
	if !found {
		return e, refusal{networkNotFound, "network " + e.Network + " does not exist"}
	}
	e.ID, e.Network = newID(), on.ID
	if e.Address.IsValid() {
		if slices.ContainsFunc(s.state.Endpoints,
			func(o endpoint) bool { return o.Network == on.ID && o.Address == e.Address }) {
			return e, refusal{invalidAddress, e.Address.String() + " is another endpoint's"}
		}
		s.state.Endpoints = append(s.state.Endpoints, e)
		return e, s.save()
	}
	for address := on.Subnet.Addr().Next().Next().Next(); on.Subnet.Contains(address); address = address.Next() {
		if !slices.ContainsFunc(s.state.Endpoints,
			func(o endpoint) bool { return o.Network == on.ID && o.Address == address }) {
			e.Address = address
			s.state.Endpoints = append(s.state.Endpoints, e)
			return e, s.save()
		}
	}
	return e, fmt.Errorf("network %s has no free address", on.Name)
}

func (s *Service) removeEndpoint(id string) (found bool, err error) {
	at, found := s.endpoint(id)
	if !found {
		return false, nil
	}
	s.state.Endpoints = slices.Delete(s.state.Endpoints, at, at+1)
	return true, s.save()
}

// sameID compares IDs case-insensitively, with or without braces.
func sameID(a, b string) bool {
	return strings.EqualFold(strings.Trim(a, "{}"), strings.Trim(b, "{}"))
}

func newID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
