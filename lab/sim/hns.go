package sim

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// hns is the host network service. Its networks outlive a reboot.
type hns struct {
	mu       sync.Mutex
	networks map[string]*network
	fault    error
}

type network struct {
	winos.HNSNetwork
	endpoints map[string]netip.Addr
}

func newHNS() *hns { return &hns{networks: map[string]*network{}} }

func (h *hns) setFault(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.fault = err
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

// CreateHNSNetwork makes a network of the host network service, or changes the one of that name, as
// the hybrid overlay does. An empty ID and management address are filled in. It answers
// winos.ErrUnsupported while the Containers feature is not enabled.
//
// Two networks can't have the same addresses. Whether the real one takes a second overlay network
// of the same prefix was never tried: nothing of ours may need it.
func (m *Machine) CreateHNSNetwork(n winos.HNSNetwork) (winos.HNSNetwork, error) {
	if err := m.hnsReady(); err != nil {
		return winos.HNSNetwork{}, err
	}
	if !n.Subnet.Addr().Is4() {
		return winos.HNSNetwork{}, fmt.Errorf("creating network %s: %s is no IPv4 subnet", n.Name, n.Subnet)
	}
	m.hns.mu.Lock()
	defer m.hns.mu.Unlock()
	if m.hns.fault != nil {
		return winos.HNSNetwork{}, m.hns.fault
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
	for name, other := range m.hns.networks {
		if name != n.Name && other.Subnet.Overlaps(n.Subnet) {
			return winos.HNSNetwork{}, fmt.Errorf("creating network %s: network %s has addresses of %s", n.Name, name,
				n.Subnet)
		}
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
