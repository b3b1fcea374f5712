package winos

import (
	"encoding/json"
	"net/netip"
	"testing"
)

func TestAnHNSNetworkIsDescribedByItsFirstIPv4Subnet(t *testing.T) {
	t.Parallel()
	policies := func(texts ...string) (all []json.RawMessage) {
		for _, text := range texts {
			all = append(all, json.RawMessage(text))
		}
		return all
	}
	got := describeHNS("id", "name", []hnsSubnet{
		{prefix: ""},
		{prefix: "fd00::/64", policies: policies(`{"Type": "VSID", "Settings": {"IsolationId": 5000}}`)},
		{prefix: "10.132.1.0/24", policies: policies(`[]`, `{"Type": "VLAN", "Settings": {"IsolationId": 7}}`,
			`{"Type": "VSID", "Settings": {"IsolationId": 4097}}`)},
		{prefix: "10.132.2.0/24", policies: policies(`{"Type": "VSID", "Settings": {"IsolationId": 4098}}`)},
	}, "10.0.0.5")
	want := HNSNetwork{ID: "id", Name: "name", Subnet: netip.MustParsePrefix("10.132.1.0/24"),
		ManagementIP: netip.MustParseAddr("10.0.0.5"), VNI: 4097}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := describeHNS("id", "name", nil, ""); got.Subnet.IsValid() || got.ManagementIP.IsValid() {
		t.Errorf("a network that is not ready: %+v", got)
	}
}

func TestIdentifiersOfHNSAreComparedWithoutCaseAndBraces(t *testing.T) {
	t.Parallel()
	if !sameID("{ABCD-12}", "abcd-12") || sameID("abcd-12", "abcd-13") {
		t.Error("identifiers are compared wrongly")
	}
}
