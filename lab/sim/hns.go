package sim

import (
	"fmt"
	"maps"
	"net/netip"
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
	endpoints map[string]netip.Addr
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

// endpoint gives the endpoint's address: the first free one after the network's own and the
// gateway's.
func (h *hns) endpoint(networkName, name string) (netip.Addr, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := h.find(networkName)
	if err != nil {
		return netip.Addr{}, err
	}
	if address, ok := n.endpoints[name]; ok {
		return address, nil
	}
	taken := map[netip.Addr]bool{}
	for _, address := range n.endpoints {
		taken[address] = true
	}
	address := n.Subnet.Masked().Addr().Next().Next()
	for ; n.Subnet.Contains(address.Next()); address = address.Next() {
		if !taken[address] {
			n.endpoints[name] = address
			return address, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("endpoint %s: network %s has no free address", name, networkName)
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
	endpoints := map[string]netip.Addr{}
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
