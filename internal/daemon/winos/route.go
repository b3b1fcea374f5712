package winos

import (
	"cmp"
	"math"
	"net/netip"
	"slices"
)

// route is a row of the routing table, together with data of the route's interface.
type route struct {
	Destination netip.Prefix
	NextHop     netip.Addr
	Interface   uint32 // interface index
	// Windows compares the sum of Metric and InterfaceMetric.
	Metric, InterfaceMetric uint32
	// Connected is true if the interface has a link.
	Connected bool
}

// defaultRoute returns the IPv4 default route that Windows uses. Among the default routes with a connected interface,
// it is the route with the smallest sum of metrics. If two sums are equal, the lower interface index wins. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/netioapi/ns-netioapi-mib_ipforward_row2 (member Metric).
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

type address struct {
	Prefix netip.Prefix // the address with the length of its network
	// Usable is true if Windows has checked that no other machine on the network uses the address.
	Usable bool
}

// addressFor selects the node's address from the addresses of an interface. It returns the first address in the next
// hop's network. If there is none, it returns the first address that isn't link-local.
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

// detour returns a route to one address, through the interface and next hop of the default route. If the table already
// has a route to this address through the same interface, with any next hop, `has` is true. If there is no default
// route, `ok` is false.
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

// `shown` converts the routing table for callers of the method Table. The widest destination comes first.
func shown(table []route, name func(index uint32) string) []Route {
	all := make([]Route, 0, len(table))
	for _, r := range table {
		metric := uint32(min(r.cost(), math.MaxUint32)) //nolint:gosec // min bounds it
		all = append(all, Route{Destination: r.Destination, NextHop: r.NextHop, Interface: name(r.Interface),
			Metric: metric})
	}
	slices.SortStableFunc(all, func(a, b Route) int {
		return cmp.Or(cmp.Compare(a.Destination.Bits(), b.Destination.Bits()),
			a.Destination.Addr().Compare(b.Destination.Addr()), cmp.Compare(a.Metric, b.Metric))
	})
	return all
}
