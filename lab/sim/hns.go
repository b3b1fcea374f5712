package sim

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// hns is the host network service. Its networks outlive a reboot, but for those with a VNI: who makes
// such a one has it end with the boot, see https://github.com/flannel-io/flannel/pull/1140.
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

// HNSEndpoint is an endpoint of a network. It need not have a name.
type HNSEndpoint struct {
	Name    string
	Address netip.Addr
	// Attached says that the host itself has the address.
	Attached bool
}

func (n *network) has(address netip.Addr) bool {
	return slices.ContainsFunc(n.endpoints, func(e HNSEndpoint) bool { return e.Address == address })
}

// firstHNS is the process of the service when the machine is made; Windows counts in fours.
const firstHNS = 1096

func newHNS() *hns { return &hns{networks: map[string]*network{}, pid: firstHNS} }

func (h *hns) setFault(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = err
}

// HNSProcess is the process of the host network service.
func (m *Machine) HNSProcess() uint32 {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	return m.hns.pid
}

// RestartHNS has the host network service end, and Windows start it again. Its networks stay.
func (m *Machine) RestartHNS() {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	m.hns.pid += 4
}

// boot removes what does not outlive it.
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

// endpoint finds an endpoint by its name, or else one without a name by its address, or makes it. If
// the address is another's, or none is wanted, it has the first free one after those of the network and
// the gateway.
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

// add refuses an address of another network, and one that is taken.
func (n *network) add(e HNSEndpoint) error {
	if !n.Subnet.Contains(e.Address) || n.has(e.Address) {
		return fmt.Errorf("endpoint %q: address %s of network %s is not free", e.Name, e.Address, n.Name)
	}
	n.endpoints = append(n.endpoints, e)
	return nil
}

// AddHNSEndpoint makes an endpoint on a network, as programs other than the daemon do.
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

// VNIs that Windows takes, see
// https://learn.microsoft.com/en-us/powershell/module/hyper-v/set-vmnetworkadapter (VirtualSubnetId).
const lowestVNI, highestVNI = 4096, 16_777_214

// refuses says why a network can't be made, or changed.
//
// Two networks can't have the same addresses or VNI. Whether the real one takes a second overlay
// network of the same prefix was never tried: nothing of ours may need it.
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

// AddHNSNetwork makes a network of the host network service, which refuses a name that is taken.
// Otherwise it is CreateHNSNetwork.
func (m *Machine) AddHNSNetwork(n winos.HNSNetwork) (winos.HNSNetwork, error) {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	if _, exists := m.hns.networks[n.Name]; exists {
		return winos.HNSNetwork{}, fmt.Errorf("creating network %s: a network with this name already exists", n.Name)
	}
	return m.makeHNSNetwork(n)
}

// CreateHNSNetwork makes a network of the host network service, or changes the one of that name, as
// the hybrid overlay does by removing it first. An empty ID and management address are filled in. It
// answers winos.ErrUnsupported while the Containers feature is not enabled.
func (m *Machine) CreateHNSNetwork(n winos.HNSNetwork) (winos.HNSNetwork, error) {
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	return m.makeHNSNetwork(n)
}

// makeHNSNetwork needs the lock.
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

// HNSNetworks lists the networks of the host network service by name.
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
