package winostest

import (
	"context"
	"net/netip"
	"slices"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func routesCases() []testCase {
	return []testCase{
		{name: "a route to one address is added once and removed", needs: []Ability{Routing}, run: routesUsed},
		{name: "the node's address is among the machine's", run: routesAddresses},
		{name: "the routing table has the default route", run: routesTable},
		{name: "what is no IPv4 address has no route", run: routesRefused},
	}
}

func routesUsed(m machine) {
	t := m.t
	to := netip.MustParseAddr("198.51.100.77") // an address that is reserved for documentation
	noError(t, m.Host.Routes.Remove(t.Context(), to))
	t.Cleanup(func() { noError(t, m.Host.Routes.Remove(context.WithoutCancel(t.Context()), to)) })
	for n := range 3 {
		added, err := m.Host.Routes.Ensure(t.Context(), to)
		noError(t, err)
		if added != (n == 0) {
			t.Errorf("attempt %d: Ensure reports added = %v", n, added)
		}
	}
	single := netip.PrefixFrom(to, to.BitLen())
	isTo := func(r winos.Route) bool { return r.Destination == single }
	if table, err := m.Host.Routes.Table(t.Context()); err != nil || !slices.ContainsFunc(table, isTo) {
		t.Errorf("the routing table lacks the new route: %v, %v", table, err)
	}
	for range 2 {
		noError(t, m.Host.Routes.Remove(t.Context(), to))
	}
	added, err := m.Host.Routes.Ensure(t.Context(), to)
	noError(t, err)
	if !added {
		t.Error("the route was not removed")
	}
	if _, err = m.Host.Network.NodeIP(t.Context()); err != nil {
		t.Errorf("the default route was removed: %v", err)
	}
}

func routesAddresses(m machine) {
	t := m.t
	all, err := m.Host.Routes.Addresses(t.Context())
	noError(t, err)
	node, err := m.Host.Network.NodeIP(t.Context())
	noError(t, err)
	if !slices.Contains(all, node) || !slices.IsSortedFunc(all, netip.Addr.Compare) {
		t.Errorf("the node's address is %s, but the machine's addresses are %v", node, all)
	}
	for _, ip := range all {
		if !ip.Is4() || ip.IsUnspecified() {
			t.Errorf("the machine's addresses include %s", ip)
		}
	}
}

func routesTable(m machine) {
	t := m.t
	table, err := m.Host.Routes.Table(t.Context())
	noError(t, err)
	isDefault := func(r winos.Route) bool {
		return r.Destination == netip.PrefixFrom(netip.IPv4Unspecified(), 0) && r.Interface != ""
	}
	if !slices.ContainsFunc(table, isDefault) {
		t.Errorf("the routing table has no default route: %v", table)
	}
	widest := func(a, b winos.Route) int { return a.Destination.Bits() - b.Destination.Bits() }
	if !slices.IsSortedFunc(table, widest) {
		t.Errorf("the routing table is not sorted: %v", table)
	}
}

func routesRefused(m machine) {
	t := m.t
	for _, to := range []netip.Addr{{}, netip.MustParseAddr("fd00:ec2::254")} {
		_, err := m.Host.Routes.Ensure(t.Context(), to)
		isError(t, "adding", err, winos.ErrInvalidName)
		isError(t, "removing", m.Host.Routes.Remove(t.Context(), to), winos.ErrInvalidName)
	}
}
