package winos

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"testing"
)

func TestTheDefaultRouteIsTheConnectedOneWithTheSmallestMetrics(t *testing.T) {
	t.Parallel()
	everything, gateway := netip.MustParsePrefix("0.0.0.0/0"), netip.MustParseAddr("10.0.0.1")
	for name, test := range map[string]struct {
		table []route
		want  uint32
		found bool
	}{
		"an empty table": {nil, 0, false},
		"no default route": {[]route{{Destination: netip.MustParsePrefix("10.0.0.0/8"), Interface: 1,
			Connected: true}}, 0, false},
		"half of the addresses": {[]route{{Destination: netip.MustParsePrefix("0.0.0.0/1"), Interface: 1,
			Connected: true}}, 0, false},
		"the only one": {[]route{{Destination: everything, NextHop: gateway, Interface: 7,
			Connected: true}}, 7, true},
		"the only one has no link": {[]route{{Destination: everything, NextHop: gateway, Interface: 7}}, 0, false},
		"the sum counts": {[]route{
			{Destination: everything, Interface: 1, Metric: 0, InterfaceMetric: 50, Connected: true},
			{Destination: everything, Interface: 2, Metric: 10, InterfaceMetric: 15, Connected: true},
			{Destination: everything, Interface: 3, Metric: 256, InterfaceMetric: 5, Connected: true},
		}, 2, true},
		"a better one has no link": {[]route{
			{Destination: everything, Interface: 1, Metric: 1, Connected: false},
			{Destination: everything, Interface: 2, Metric: 100, Connected: true},
		}, 2, true},
		"sums do not overflow": {[]route{
			{Destination: everything, Interface: 1, Metric: 1 << 31, InterfaceMetric: 1 << 31, Connected: true},
			{Destination: everything, Interface: 2, Metric: 10, Connected: true},
		}, 2, true},
		"equals go by index": {[]route{
			{Destination: everything, Interface: 9, Connected: true},
			{Destination: everything, Interface: 4, Connected: true},
		}, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, found := defaultRoute(test.table)
			if got.Interface != test.want || found != test.found {
				t.Errorf("interface %d, %t; want %d, %t", got.Interface, found, test.want, test.found)
			}
		})
	}
}

func TestTheNodeIsKnownByTheAddressBesideItsGateway(t *testing.T) {
	t.Parallel()
	usable := func(prefix string) address { return address{Prefix: netip.MustParsePrefix(prefix), Usable: true} }
	for name, test := range map[string]struct {
		nextHop   string
		addresses []address
		want      string
	}{
		"no address": {"10.0.0.1", nil, ""},
		"one":        {"10.0.0.1", []address{usable("10.0.0.5/24")}, "10.0.0.5"},
		"the one in the gateway's network": {"10.0.0.1", []address{usable("192.168.0.5/24"), usable("10.0.0.5/24")},
			"10.0.0.5"},
		"a gateway in no known network": {"172.16.0.1", []address{usable("192.168.0.5/24"), usable("10.0.0.5/24")},
			"192.168.0.5"},
		"a route without a gateway":       {"0.0.0.0", []address{usable("10.0.0.5/24")}, "10.0.0.5"},
		"a link-local address is invalid": {"10.0.0.1", []address{usable("169.254.1.2/16")}, ""},
		"a duplicate address is invalid": {"10.0.0.1",
			[]address{{Prefix: netip.MustParsePrefix("10.0.0.5/24")}, usable("10.0.0.6/24")}, "10.0.0.6"},
		"an IPv6 address is invalid": {"10.0.0.1", []address{usable("fd00::5/64"), usable("10.0.0.6/24")},
			"10.0.0.6"},
		"an address that could not be read":  {"10.0.0.1", []address{{Usable: true}}, ""},
		"a single address without a network": {"10.0.0.1", []address{usable("10.0.0.5/32")}, "10.0.0.5"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, found := addressFor(netip.MustParseAddr(test.nextHop), test.addresses)
			if found != (test.want != "") || found && got.String() != test.want {
				t.Errorf("got %v, %t; want %q", got, found, test.want)
			}
		})
	}
}

func TestADetourLeadsWhereTheDefaultRouteLeads(t *testing.T) {
	t.Parallel()
	to, gateway := netip.MustParseAddr("169.254.169.254"), netip.MustParseAddr("10.0.0.1")
	single := netip.MustParsePrefix("169.254.169.254/32")
	way := route{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHop: gateway, Interface: 7, Connected: true}
	for name, c := range map[string]struct {
		table   []route
		has, ok bool
	}{
		"no default route":      {nil, false, false},
		"a default route alone": {[]route{way}, false, true},
		"the route is there": {[]route{way,
			{Destination: single, NextHop: gateway, Interface: 7, Connected: true}}, true, true},
		"it is there, by another hop": {[]route{way, {Destination: single, Interface: 7, Connected: true}}, true,
			true},
		"it is on another interface": {[]route{way,
			{Destination: single, NextHop: gateway, Interface: 4, Connected: true}}, false, true},
		"a whole network has one": {[]route{way,
			{Destination: netip.MustParsePrefix("169.254.0.0/16"), Interface: 7, Connected: true}}, false, true},
		"its interface has no link now": {[]route{way, {Destination: single, Interface: 7}}, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			add, has, ok := detour(c.table, to)
			if has != c.has || ok != c.ok {
				t.Errorf("has %v, ok %v", has, ok)
			}
			if ok && (add.Destination != single || add.NextHop != gateway || add.Interface != 7) {
				t.Errorf("the route is %+v", add)
			}
		})
	}
}

func TestGatewaysAreTheConnectedInterfacesWithADefaultRoute(t *testing.T) {
	t.Parallel()
	everything := netip.MustParsePrefix("0.0.0.0/0")
	table := []route{
		{Destination: everything, Interface: 7, Metric: 1, Connected: true},
		{Destination: everything, Interface: 7, Metric: 2, Connected: true},
		{Destination: everything, Interface: 8},
		{Destination: netip.MustParsePrefix("10.0.0.0/8"), Interface: 9, Connected: true},
		{Destination: everything, Interface: 3, Connected: true},
	}
	if got := gateways(table); !slices.Equal(got, []uint32{7, 3}) {
		t.Errorf("gateways are %v", got)
	}
}

func TestATableIsShownWithTheWidestDestinationFirst(t *testing.T) {
	t.Parallel()
	hop := netip.MustParseAddr("10.0.0.1")
	table := []route{
		{Destination: netip.MustParsePrefix("169.254.169.254/32"), NextHop: hop, Interface: 2, Metric: 1},
		{Destination: netip.MustParsePrefix("10.0.0.0/24"), Interface: 2, Metric: 1 << 31, InterfaceMetric: 1 << 31},
		{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHop: hop, Interface: 2, Metric: 20, InterfaceMetric: 5},
		{Destination: netip.MustParsePrefix("0.0.0.0/0"), NextHop: hop, Interface: 3, Metric: 5},
	}
	var got []string
	for _, r := range shown(table, func(index uint32) string { return "card" + strconv.Itoa(int(index)) }) {
		got = append(got, fmt.Sprint(r.Destination, " ", r.Interface, " ", r.Metric))
	}
	want := []string{"0.0.0.0/0 card3 5", "0.0.0.0/0 card2 25", "10.0.0.0/24 card2 4294967295",
		"169.254.169.254/32 card2 1"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
