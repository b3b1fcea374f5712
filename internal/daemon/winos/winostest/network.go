package winostest

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func networkCases() []testCase {
	return []testCase{
		{name: "the node has an IPv4 address", run: networkNodeIP},
		{name: "a port that somebody listens on is listed", run: networkListening},
		{name: "what listens on a port is reached there and in the way of others", run: networkListen},
		{name: "where nobody listens nobody answers", run: networkDialNobody},
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

// freePort is a port of the machine that nobody listens on.
func (m machine) freePort(t *testing.T) int {
	t.Helper()
	all, err := m.Host.Network.Listening(t.Context())
	noError(t, err)
	for port := 49_917; ; port++ {
		if _, taken := all[port]; !taken {
			return port
		}
	}
}

func local(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
}

func networkListen(m machine) {
	t := m.t
	port := m.freePort(t)
	for range 2 { // a port that was given back is free
		l, err := m.Host.Network.Listen(t.Context(), port)
		noError(t, err)
		_, err = m.Host.Network.Listen(t.Context(), port)
		isError(t, "listening twice", err, winos.ErrInUse)
		all, err := m.Host.Network.Listening(t.Context())
		noError(t, err)
		if _, found := all[port]; !found {
			t.Errorf("port %d is not among %v", port, all)
		}
		said := make(chan error, 1)
		go func() {
			conn, err := l.Accept()
			if err == nil {
				_, err = io.WriteString(conn, "hello")
				err = errors.Join(err, conn.Close())
			}
			said <- err
		}()
		conn, err := m.Host.Network.Dial(t.Context(), local(port))
		noError(t, err)
		got, err := io.ReadAll(conn)
		noError(t, err)
		noError(t, conn.Close())
		noError(t, <-said)
		if string(got) != "hello" {
			t.Errorf("it said %q", got)
		}
		noError(t, l.Close())
		if _, err = l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener accepts: %v", err)
		}
	}
}

func networkDialNobody(m machine) {
	t := m.t
	if conn, err := m.Host.Network.Dial(t.Context(), local(m.freePort(t))); err == nil {
		t.Error("somebody answers")
		noError(t, conn.Close())
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
