package winos

import (
	"encoding/json"
	"net/netip"
	"strings"
)

type hnsSubnet struct {
	prefix   string
	policies []json.RawMessage
}

// describeHNS converts HNS's description of a network. It uses the first IPv4 subnet and its VNI. The management
// address is empty until the network has taken over the network card's address.
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

// vniOf returns the VNI from the policies of a subnet, or 0. HNS calls the VNI a VSID.
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

// sameID compares HNS identifiers. HNS's two interfaces write the same identifier with or without braces, and in upper
// or lower case.
func sameID(a, b string) bool {
	return strings.EqualFold(strings.Trim(a, "{}"), strings.Trim(b, "{}"))
}
