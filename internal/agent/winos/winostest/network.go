package winostest

import (
	"net/netip"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

func networkCases() []testCase {
	return []testCase{
		{name: "the node has an IPv4 address", run: networkNodeIP},
		{name: "a port that somebody listens on is listed", run: networkListening},
		{name: "an HNS network that does not exist is not found", needs: []Ability{HNS}, run: networkMissing},
		{name: "an HNS network is found and given endpoints and removed", needs: []Ability{HNS}, run: networkUsed},
		{name: "without a host network service everything about it is unsupported", run: networkUnsupported},
	}
}

func networkNodeIP(m machine) {
	t := m.t
	address, err := m.Host.Network.NodeIP(t.Context())
	noError(t, err)
	if !address.Is4() || address.IsUnspecified() {
		t.Errorf("the node's address is %v", address)
	}
}

func networkListening(m machine) {
	t := m.t
	if m.Listen == nil {
		t.Log("left out: the fixture can't listen")
		return
	}
	port := m.Listen(t)
	all, err := m.Host.Network.Listening(t.Context())
	noError(t, err)
	if _, found := all[port]; !found {
		t.Errorf("port %d is not among %v", port, all)
	}
	if _, found := all[0]; found {
		t.Error("somebody listens on port 0")
	}
}

func networkMissing(m machine) {
	t := m.t
	_, err := m.Host.Network.HNSNetwork(t.Context(), m.prefix)
	isError(t, "looking", err, winos.ErrNotFound)
	_, err = m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "endpoint")
	isError(t, "making an endpoint", err, winos.ErrNotFound)
	noError(t, m.Host.Network.RemoveHNSNetwork(t.Context(), m.prefix))
}

func networkUsed(m machine) {
	t := m.t
	if m.CreateNetwork == nil {
		t.Log("left out: the fixture can't create networks")
		return
	}
	subnet := netip.MustParsePrefix("10.212.5.0/24")
	m.CreateNetwork(t, m.prefix, subnet)
	network, err := m.Host.Network.HNSNetwork(t.Context(), m.prefix)
	noError(t, err)
	if network.Name != m.prefix || network.ID == "" || network.Subnet != subnet || !network.ManagementIP.Is4() {
		t.Errorf("the network is %+v", network)
	}
	first, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "VIPEndpoint")
	noError(t, err)
	again, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "VIPEndpoint")
	noError(t, err)
	other, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "Other")
	noError(t, err)
	if first != again || first == other || !subnet.Contains(first) || !subnet.Contains(other) {
		t.Errorf("the endpoint has %v, then %v, and the other %v", first, again, other)
	}
	for range 2 {
		noError(t, m.Host.Network.RemoveHNSNetwork(t.Context(), m.prefix))
		_, err = m.Host.Network.HNSNetwork(t.Context(), m.prefix)
		isError(t, "looking for a removed network", err, winos.ErrNotFound)
	}
}

func networkUnsupported(m machine) {
	t := m.t
	if _, cannot := m.Cannot[HNS]; !cannot {
		return
	}
	_, err := m.Host.Network.HNSNetwork(t.Context(), m.prefix)
	isError(t, "looking", err, winos.ErrUnsupported)
	_, err = m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "endpoint")
	isError(t, "making an endpoint", err, winos.ErrUnsupported)
	isError(t, "removing", m.Host.Network.RemoveHNSNetwork(t.Context(), m.prefix), winos.ErrUnsupported)
}
