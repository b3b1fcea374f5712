package winos

import (
	"net/netip"
	"strings"
)

// describeHNS puts together what HNS says of a network: its first IPv4 subnet, and its management
// address, which is empty until the network has taken over the address of the network card.
func describeHNS(id, name string, subnets []string, management string) HNSNetwork {
	found := HNSNetwork{ID: id, Name: name}
	for _, subnet := range subnets {
		if prefix, err := netip.ParsePrefix(subnet); err == nil && prefix.Addr().Is4() {
			found.Subnet = prefix
			break
		}
	}
	if ip, err := netip.ParseAddr(management); err == nil {
		found.ManagementIP = ip
	}
	return found
}

// sameID compares identifiers of HNS, which its two interfaces write with or without braces and in
// either case.
func sameID(a, b string) bool {
	return strings.EqualFold(strings.Trim(a, "{}"), strings.Trim(b, "{}"))
}
