package winostest

import (
	"context"
	"errors"
	"fmt"
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
		{name: "an overlay of flannel is found with its VNI", needs: []Ability{HNS}, run: overlayFound},
		{name: "an overlay of a VNI that is none of Windows is refused", needs: []Ability{HNS}, run: overlayNumbers},
		{name: "the name, the VNI and the addresses of an overlay are taken", needs: []Ability{HNS}, run: overlayTaken},
		{name: "an overlay is removed with endpoints on it and made again with another VNI", needs: []Ability{HNS},
			run: overlayReplaced},
		{name: "an overlay of flannel ends with the boot", needs: []Ability{HNS}, whole: true, run: overlayBoot},
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
		t.Errorf("the listening ports %[2]v lack port %[1]d", port, all)
	}
	if _, found := all[0]; found {
		t.Error("port 0 is reported as a listening port")
	}
}

// freePort returns a port on which no program listens.
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
	for range 2 { // after a listener is closed, its port is free again
		l, err := m.Host.Network.Listen(t.Context(), port)
		noError(t, err)
		_, err = m.Host.Network.Listen(t.Context(), port)
		isError(t, "listening twice", err, winos.ErrInUse)
		all, err := m.Host.Network.Listening(t.Context())
		noError(t, err)
		if _, found := all[port]; !found {
			t.Errorf("the listening ports %[2]v lack port %[1]d", port, all)
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
			t.Errorf("the listener received %q", got)
		}
		noError(t, l.Close())
		if _, err = l.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed listener still accepts connections: %v", err)
		}
	}
}

func networkDialNobody(m machine) {
	t := m.t
	if conn, err := m.Host.Network.Dial(t.Context(), local(m.freePort(t))); err == nil {
		t.Error("a connection to a port without a listener succeeded")
		noError(t, conn.Close())
	}
}

func networkMissing(m machine) {
	t := m.t
	_, err := m.Host.Network.HNSNetwork(t.Context(), m.prefix)
	isError(t, "looking", err, winos.ErrNotFound)
	_, err = m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "endpoint", netip.Addr{})
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
	noError(t, m.CreateNetwork(t, winos.HNSNetwork{Name: m.prefix, Subnet: subnet}))
	network, err := m.Host.Network.HNSNetwork(t.Context(), m.prefix)
	noError(t, err)
	if network.Name != m.prefix || network.ID == "" || network.Subnet != subnet || !network.ManagementIP.Is4() {
		t.Errorf("the network is %+v", network)
	}
	first, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "VIPEndpoint", netip.Addr{})
	noError(t, err)
	again, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "VIPEndpoint", netip.Addr{})
	noError(t, err)
	other, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "Other", netip.Addr{})
	noError(t, err)
	if first != again || first == other || !subnet.Contains(first) || !subnet.Contains(other) {
		t.Errorf("the endpoint has the address %v, then %v, and the other endpoint has %v", first, again, other)
	}
	// Endpoints that kube-proxy creates have an address but no name.
	wanted := netip.MustParseAddr("10.212.5.77")
	for _, c := range []struct {
		name        string
		asked, want netip.Addr
	}{{"", wanted, wanted}, {"Adopted", wanted, wanted}, {"VIPEndpoint", wanted, first}} {
		got, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, c.name, c.asked)
		noError(t, err)
		if got != c.want {
			t.Errorf("endpoint %q has the address %v, want %v", c.name, got, c.want)
		}
	}
	taken, err := m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "Not a pod's", other)
	noError(t, err)
	if taken == other || !subnet.Contains(taken) {
		t.Errorf("a new endpoint has the address %v of another endpoint", taken)
	}
	for range 2 {
		noError(t, m.Host.Network.RemoveHNSNetwork(t.Context(), m.prefix))
		_, err = m.Host.Network.HNSNetwork(t.Context(), m.prefix)
		isError(t, "looking for a removed network", err, winos.ErrNotFound)
	}
}

// overlay returns a network of flannel: its name contains the VNI, and its subnet is the Node's part of the pod
// network.
func (m machine) overlay(vni uint32, subnet string) winos.HNSNetwork {
	return winos.HNSNetwork{Name: fmt.Sprintf("%s.%d", m.prefix, vni), VNI: vni, Subnet: netip.MustParsePrefix(subnet)}
}

// makesOverlays reports whether the fixture can create overlays, and removes overlays of these VNIs after the case.
func (m machine) makesOverlays(vnis ...uint32) bool {
	if m.CreateNetwork == nil {
		m.t.Log("left out: the fixture can't create networks")
		return false
	}
	m.t.Cleanup(func() {
		ctx := context.WithoutCancel(m.t.Context())
		for _, vni := range vnis {
			noError(m.t, m.Host.Network.RemoveHNSNetwork(ctx, m.overlay(vni, "0.0.0.0/0").Name))
		}
	})
	return true
}

// expectOverlay checks that a network exists with its original properties.
func (m machine) expectOverlay(want winos.HNSNetwork) {
	m.t.Helper()
	found, err := m.Host.Network.HNSNetwork(m.t.Context(), want.Name)
	noError(m.t, err)
	if found.VNI != want.VNI || found.Subnet != want.Subnet || found.Name != want.Name || found.ID == "" ||
		!found.ManagementIP.Is4() {
		m.t.Errorf("the network is %+v, want %+v", found, want)
	}
}

func overlayFound(m machine) {
	if !m.makesOverlays(4096, 16_777_214) {
		return
	}
	first, last := m.overlay(4096, "10.244.3.0/24"), m.overlay(16_777_214, "10.244.4.0/24")
	noError(m.t, m.CreateNetwork(m.t, first))
	noError(m.t, m.CreateNetwork(m.t, last))
	m.expectOverlay(first)
	m.expectOverlay(last)
}

// The case creates networks with VNIs outside the valid range. HNS must refuse them. Windows did not accept 256, and a
// Windows developer names 4096 as the minimum. The maximum comes from Hyper-V:
// https://github.com/moby/moby/issues/32935, https://github.com/flannel-io/flannel/pull/1215 and
// https://learn.microsoft.com/en-us/powershell/module/hyper-v/set-vmnetworkadapter.
func overlayNumbers(m machine) {
	vnis := []uint32{1, 256, 4095, 16_777_215, 1 << 24}
	if !m.makesOverlays(vnis...) {
		return
	}
	for _, vni := range vnis {
		wanted := m.overlay(vni, "10.244.3.0/24")
		if m.CreateNetwork(m.t, wanted) == nil {
			m.t.Errorf("HNS accepted the VNI %d", vni)
		}
		_, err := m.Host.Network.HNSNetwork(m.t.Context(), wanted.Name)
		isError(m.t, "looking for a refused network", err, winos.ErrNotFound)
	}
}

// HNS must refuse a network with the name, VNI or addresses of another network. Windows is known to refuse a duplicate
// name: https://github.com/microsoft/hcsshim/issues/850. The behavior for a VNI or addresses of another network is not
// documented. The lab refuses such networks, so that the daemon can't rely on the opposite.
func overlayTaken(m machine) {
	if !m.makesOverlays(4096, 4097) {
		return
	}
	first := m.overlay(4096, "10.244.3.0/24")
	noError(m.t, m.CreateNetwork(m.t, first))
	for what, change := range map[string]func(n *winos.HNSNetwork){
		"name":           func(n *winos.HNSNetwork) { n.Name = first.Name },
		"VNI":            func(n *winos.HNSNetwork) { n.VNI = first.VNI },
		"subnet":         func(n *winos.HNSNetwork) { n.Subnet = first.Subnet },
		"part of it":     func(n *winos.HNSNetwork) { n.Subnet = netip.MustParsePrefix("10.244.3.128/25") },
		"what is around": func(n *winos.HNSNetwork) { n.Subnet = netip.MustParsePrefix("10.244.0.0/16") },
	} {
		other := m.overlay(4097, "10.244.4.0/24")
		change(&other)
		if m.CreateNetwork(m.t, other) == nil {
			m.t.Errorf("HNS accepted a network with the %s of another network", what)
			noError(m.t, m.Host.Network.RemoveHNSNetwork(m.t.Context(), m.overlay(4097, "0.0.0.0/0").Name))
		}
		m.expectOverlay(first)
	}
}

// If flannel's VNI changes, the daemon removes the network, and flanneld creates a new one. The new network must work
// like the first.
func overlayReplaced(m machine) {
	if !m.makesOverlays(4096, 4097) {
		return
	}
	t := m.t
	was, next := m.overlay(4096, "10.244.3.0/24"), m.overlay(4097, "10.244.3.0/24")
	noError(t, m.CreateNetwork(t, was))
	address, err := m.Host.Network.EnsureEndpoint(t.Context(), was.Name, "VIPEndpoint", netip.Addr{})
	noError(t, err)
	_, err = m.Host.Network.EnsureEndpoint(t.Context(), was.Name, "Other", netip.Addr{})
	noError(t, err)
	m.expectOverlay(was)
	for range 2 {
		noError(t, m.Host.Network.RemoveHNSNetwork(t.Context(), was.Name))
		_, err = m.Host.Network.HNSNetwork(t.Context(), was.Name)
		isError(t, "looking for a removed network", err, winos.ErrNotFound)
	}
	noError(t, m.CreateNetwork(t, next))
	m.expectOverlay(next)
	// Removing a network also removes its endpoints, so their addresses are free again.
	again, err := m.Host.Network.EnsureEndpoint(t.Context(), next.Name, "New", netip.Addr{})
	noError(t, err)
	if again != address {
		t.Errorf("the first endpoint of the new network has the address %v, want %v", again, address)
	}
	_, err = m.Host.Network.EnsureEndpoint(t.Context(), was.Name, "VIPEndpoint", netip.Addr{})
	isError(t, "making an endpoint on a removed network", err, winos.ErrNotFound)
}

// flanneld creates networks that a reboot deletes: https://github.com/flannel-io/flannel/pull/1140. After a reboot, the
// network must be gone, and it must be possible to create it again.
func overlayBoot(m machine) {
	if !m.makesOverlays(4096) {
		return
	}
	made := m.overlay(4096, "10.244.3.0/24")
	noError(m.t, m.CreateNetwork(m.t, made))
	_, err := m.Host.Network.EnsureEndpoint(m.t.Context(), made.Name, "VIPEndpoint", netip.Addr{})
	noError(m.t, err)
	m.Reboot(m.t)
	_, err = m.Host.Network.HNSNetwork(m.t.Context(), made.Name)
	isError(m.t, "looking after the boot", err, winos.ErrNotFound)
	noError(m.t, m.CreateNetwork(m.t, made))
	m.expectOverlay(made)
}

func networkUnsupported(m machine) {
	t := m.t
	if _, cannot := m.Cannot[HNS]; !cannot {
		return
	}
	_, err := m.Host.Network.HNSNetwork(t.Context(), m.prefix)
	isError(t, "looking", err, winos.ErrUnsupported)
	_, err = m.Host.Network.EnsureEndpoint(t.Context(), m.prefix, "endpoint", netip.Addr{})
	isError(t, "making an endpoint", err, winos.ErrUnsupported)
	isError(t, "removing", m.Host.Network.RemoveHNSNetwork(t.Context(), m.prefix), winos.ErrUnsupported)
}
