package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// hns is the host network service. A reboot removes networks with a VNI, because programs create them as temporary
// networks, see https://github.com/flannel-io/flannel/pull/1140. All other networks survive.
type hns struct {
	mu       sync.Mutex
	networks map[string]*network
	fault    error
	pid      uint32
}

type network struct {
	winos.HNSNetwork
	endpoints []HNSEndpoint
}

// HNSEndpoint is an endpoint of a network. Its name may be empty.
type HNSEndpoint struct {
	Name    string
	Address netip.Addr
	// Attached means that the host itself has the address of the endpoint.
	Attached bool
}

func (n *network) has(address netip.Addr) bool {
	return slices.ContainsFunc(n.endpoints, func(e HNSEndpoint) bool { return e.Address == address })
}

// firstHNS is the process ID of the service on a new machine. On Windows, process IDs are multiples of four.
const firstHNS = 1096

func newHNS() *hns { return &hns{networks: map[string]*network{}, pid: firstHNS} }

func (h *hns) setFault(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = err
}

// HNSProcess returns the process ID of the host network service.
func (m *Machine) HNSProcess() uint32 {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	return m.hns.pid
}

// RestartHNS simulates that the host network service crashes and that Windows restarts it. Its networks remain.
func (m *Machine) RestartHNS() {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	m.hns.pid += 4
}

// boot removes the networks that don't survive a reboot.
func (h *hns) boot() {
	h.mu.Lock()
	defer h.mu.Unlock()
	maps.DeleteFunc(h.networks, func(_ string, n *network) bool { return n.VNI != 0 })
}

func (h *hns) find(name string) (*network, error) {
	if h.fault != nil {
		return nil, h.fault
	}
	n, ok := h.networks[name]
	if !ok {
		return nil, fmt.Errorf("network %s: %w", name, winos.ErrNotFound)
	}
	return n, nil
}

func (h *hns) get(name string) (winos.HNSNetwork, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.find(name)
	if err != nil {
		return winos.HNSNetwork{}, err
	}
	return n.HNSNetwork, nil
}

func (h *hns) remove(name string) (removed bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.fault != nil {
		return false, h.fault
	}
	_, removed = h.networks[name]
	delete(h.networks, name)
	return removed, nil
}

// endpoint returns the address of an endpoint. It looks for an endpoint with the given name, and then for an unnamed
// endpoint with the wanted address. If there is none, it creates an endpoint with the wanted address. If no address is
// wanted, or the wanted address is in use, the new endpoint gets the first free address after the addresses of the
// network and the gateway.
func (h *hns) endpoint(networkName, name string, wanted netip.Addr) (netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.find(networkName)
	if err != nil {
		return netip.Addr{}, err
	}
	at := slices.IndexFunc(n.endpoints, func(e HNSEndpoint) bool { return e.Name == name })
	if at < 0 && wanted.IsValid() {
		at = slices.IndexFunc(n.endpoints, func(e HNSEndpoint) bool { return e.Name == "" && e.Address == wanted })
	}
	if at >= 0 {
		n.endpoints[at].Attached = true
		return n.endpoints[at].Address, nil
	}
	if wanted.IsValid() && !n.has(wanted) {
		return wanted, n.add(HNSEndpoint{name, wanted, true})
	}
	for address := n.Subnet.Masked().Addr().Next().Next(); n.Subnet.Contains(address.Next()); address = address.Next() {
		if !n.has(address) {
			return address, n.add(HNSEndpoint{name, address, true})
		}
	}
	return netip.Addr{}, fmt.Errorf("endpoint %s: network %s has no free address", name, networkName)
}

// add adds an endpoint. It refuses an address that is outside the network or in use.
func (n *network) add(e HNSEndpoint) error {
	if !n.Subnet.Contains(e.Address) || n.has(e.Address) {
		return fmt.Errorf("endpoint %q: address %s of network %s is not free", e.Name, e.Address, n.Name)
	}
	n.endpoints = append(n.endpoints, e)
	return nil
}

// AddHNSEndpoint creates an endpoint of a network, as if a program other than the daemon created it.
func (m *Machine) AddHNSEndpoint(networkName string, e HNSEndpoint) error {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	n, err := m.hns.find(networkName)
	if err != nil {
		return err
	}
	return n.add(e)
}

// HNSEndpoints lists the endpoints of a network.
func (m *Machine) HNSEndpoints(networkName string) ([]HNSEndpoint, error) {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	n, err := m.hns.find(networkName)
	if err != nil {
		return nil, err
	}
	return slices.Clone(n.endpoints), nil
}

// Windows accepts VNIs in this range. See the parameter VirtualSubnetId in
// https://learn.microsoft.com/en-us/powershell/module/hyper-v/set-vmnetworkadapter.
const lowestVNI, highestVNI = 4096, 16_777_214

// refuses(n) returns the reason why the network n can't be created or changed. If it can, the result is nil.
//
// Two networks can't have the same addresses or the same VNI. No test has shown whether Windows accepts a second
// overlay network with the same prefix, so the product must not need one.
func (h *hns) refuses(n winos.HNSNetwork) error {
	if !n.Subnet.IsValid() || !n.Subnet.Addr().Is4() {
		return fmt.Errorf("creating network %s: %s is no IPv4 subnet", n.Name, n.Subnet)
	}
	if n.VNI != 0 && (n.VNI < lowestVNI || n.VNI > highestVNI) {
		return fmt.Errorf("creating network %s: VNI %d is not from %d to %d", n.Name, n.VNI, lowestVNI, highestVNI)
	}
	for name, other := range h.networks {
		switch {
		case name == n.Name:
		case other.Subnet.Overlaps(n.Subnet):
			return fmt.Errorf("creating network %s: network %s has addresses of %s", n.Name, name, n.Subnet)
		case n.VNI != 0 && n.VNI == other.VNI:
			return fmt.Errorf("creating network %s: network %s has VNI %d", n.Name, name, n.VNI)
		}
	}
	return nil
}

// AddHNSNetwork creates a network. It works like CreateHNSNetwork, but it refuses a name that exists.
func (m *Machine) AddHNSNetwork(n winos.HNSNetwork) (winos.HNSNetwork, error) {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	if _, exists := m.hns.networks[n.Name]; exists {
		return winos.HNSNetwork{}, fmt.Errorf("creating network %s: a network with this name already exists", n.Name)
	}
	return m.makeHNSNetwork(n)
}

// CreateHNSNetwork creates a network, or replaces the network with the same name. The hybrid overlay has the same
// effect: it removes the network first. If the ID or the management address is empty, CreateHNSNetwork sets it. If the
// feature Containers is disabled, it returns winos.ErrUnsupported.
func (m *Machine) CreateHNSNetwork(n winos.HNSNetwork) (winos.HNSNetwork, error) {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	return m.makeHNSNetwork(n)
}

// makeHNSNetwork creates a network. The caller must have the lock.
func (m *Machine) makeHNSNetwork(n winos.HNSNetwork) (winos.HNSNetwork, error) {
	if err := m.hnsReady(); err != nil {
		return winos.HNSNetwork{}, err
	}
	if m.hns.fault != nil {
		return winos.HNSNetwork{}, m.hns.fault
	}
	if err := m.hns.refuses(n); err != nil {
		return winos.HNSNetwork{}, err
	}
	old, exists := m.hns.networks[n.Name]
	if exists && n.ID == "" {
		n.ID = old.ID
	}
	if n.ID == "" {
		n.ID = newGUID()
	}
	if !n.ManagementIP.IsValid() {
		n.ManagementIP = m.address
	}
	var endpoints []HNSEndpoint
	if exists && old.Subnet == n.Subnet {
		endpoints = old.endpoints
	}
	if !exists {
		m.routes.lose()
	}
	m.hns.networks[n.Name] = &network{HNSNetwork: n, endpoints: endpoints}
	return n, nil
}

// HNSNetworks lists the networks, sorted by name.
func (m *Machine) HNSNetworks() []winos.HNSNetwork {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	var all []winos.HNSNetwork
	for _, name := range sortedKeys(m.hns.networks) {
		all = append(all, m.hns.networks[name].HNSNetwork)
	}
	return all
}

func (m *Machine) hnsReady() error {
	if state, err := m.system.feature(featureContainers); err != nil || state != winos.FeatureEnabled {
		return fmt.Errorf("host network service: %w", winos.ErrUnsupported)
	}
	return nil
}
