package winos

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// hnsSubnet is a subnet of a network as HNS tells it, with what holds for it.
type hnsSubnet struct {
	prefix   string
	policies []json.RawMessage
}

// describeHNS puts together what HNS says of a network: its first IPv4 subnet with its VNI, and its
// management address, which is empty until the network has taken over the address of the network
// card.
func describeHNS(id, name string, subnets []hnsSubnet, management string) HNSNetwork {
	found := HNSNetwork{ID: id, Name: name}
	for _, subnet := range subnets {
		if prefix, err := netip.ParsePrefix(subnet.prefix); err == nil && prefix.Addr().Is4() {
			found.Subnet, found.VNI = prefix, vniOf(subnet.policies)
			break
		}
	}
	if ip, err := netip.ParseAddr(management); err == nil {
		found.ManagementIP = ip
	}
	return found
}

// vniOf finds the VNI among the policies of a subnet, where its name is VSID; 0 if it is not there.
func vniOf(policies []json.RawMessage) uint32 {
	for _, raw := range policies {
		var policy struct {
			Type     string
			Settings struct{ IsolationID uint32 }
		}
		if json.Unmarshal(raw, &policy) == nil && policy.Type == "VSID" {
			return policy.Settings.IsolationID
		}
	}
	return 0
}

// sameID compares identifiers of HNS, which its two interfaces write with or without braces and in
// either case.
func sameID(a, b string) bool {
	return strings.EqualFold(strings.Trim(a, "{}"), strings.Trim(b, "{}"))
}
