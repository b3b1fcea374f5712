package winos

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
)

// route is one row of the routing table, with what matters of its interface.
type route struct {
	Destination netip.Prefix
	NextHop     netip.Addr
	Interface   uint32 // index
	// Metric of the route and InterfaceMetric add up to what Windows compares.
	Metric, InterfaceMetric uint32
	// Connected says that the interface has a link.
	Connected bool
}

// defaultRoute chooses the IPv4 default route that Windows uses: of those whose interface is
// connected the one with the smallest sum of metrics, and among equals that of the lowest interface
// index. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/netioapi/ns-netioapi-mib_ipforward_row2
// (member Metric).
func defaultRoute(table []route) (route, bool) {
	candidates := slices.DeleteFunc(slices.Clone(table), func(r route) bool {
		return r.Destination != netip.PrefixFrom(netip.IPv4Unspecified(), 0) || !r.Connected
	})
	if len(candidates) == 0 {
		return route{}, false
	}
	return slices.MinFunc(candidates, func(a, b route) int {
		return cmp.Or(cmp.Compare(a.cost(), b.cost()), cmp.Compare(a.Interface, b.Interface))
	}), true
}

// gateways are the connected interfaces that have an IPv4 default route, in the table's order.
func gateways(table []route) (interfaces []uint32) {
	for _, r := range table {
		if r.Destination == netip.PrefixFrom(netip.IPv4Unspecified(), 0) && r.Connected &&
			!slices.Contains(interfaces, r.Interface) {
			interfaces = append(interfaces, r.Interface)
		}
	}
	return interfaces
}

func (r route) cost() uint64 { return uint64(r.Metric) + uint64(r.InterfaceMetric) }

// address is one address of an interface.
type address struct {
	Prefix netip.Prefix // the address with the length of its network
	// Usable says that Windows has found no duplicate of it on the network.
	Usable bool
}

// addressFor chooses which of an interface's addresses the node is known by: the one in the network
// of the next hop, or else the first that is not link-local. The order of addresses is the
// interface's own.
func addressFor(nextHop netip.Addr, addresses []address) (netip.Addr, bool) {
	var first netip.Addr
	for _, a := range addresses {
		ip := a.Prefix.Addr()
		if !a.Usable || !ip.Is4() || ip.IsLinkLocalUnicast() || ip.IsLoopback() || ip.IsUnspecified() {
			continue
		}
		if nextHop.IsValid() && !nextHop.IsUnspecified() && a.Prefix.Contains(nextHop) {
			return ip, true
		}
		if !first.IsValid() {
			first = ip
		}
	}
	return first, first.IsValid()
}

// detour is the route by which packets to one address go where the default route goes. has says
// that the table has such a route already, whatever its next hop; without a default route there is
// none.
func detour(table []route, to netip.Addr) (add route, has, ok bool) {
	way, ok := defaultRoute(table)
	if !ok {
		return route{}, false, false
	}
	single := netip.PrefixFrom(to, to.BitLen())
	has = slices.ContainsFunc(table, func(r route) bool {
		return r.Destination == single && r.Interface == way.Interface && r.Connected
	})
	return route{Destination: single, NextHop: way.NextHop, Interface: way.Interface}, has, true
}

// shown is a table as others see it, those to the widest destination first.
func shown(table []route, name func(index uint32) string) []Route {
	all := make([]Route, 0, len(table))
	for _, r := range table {
		metric := uint32(min(r.cost(), math.MaxUint32)) //nolint:gosec // it is bounded
		all = append(all, Route{Destination: r.Destination, NextHop: r.NextHop, Interface: name(r.Interface),
			Metric: metric})
	}
	slices.SortStableFunc(all, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Destination.Bits(), b.Destination.Bits()),
			a.Destination.Addr().Compare(b.Destination.Addr()), cmp.Compare(a.Metric, b.Metric))
	})
	return all
}
