package winos

import (
	"net/netip"
	"testing"
)

func TestAnHNSNetworkIsDescribedByItsFirstIPv4Subnet(t *testing.T) {
	t.Parallel()
	got := describeHNS("id", "name", []string{"", "fd00::/64", "10.132.1.0/24", "10.132.2.0/24"}, "10.0.0.5")
	want := HNSNetwork{ID: "id", Name: "name", Subnet: netip.MustParsePrefix("10.132.1.0/24"),
		ManagementIP: netip.MustParseAddr("10.0.0.5")}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := describeHNS("id", "name", nil, ""); got.Subnet.IsValid() || got.ManagementIP.IsValid() {
		t.Errorf("a network that is not ready gives %+v", got)
	}
}

func TestIdentifiersOfHNSAreComparedWithoutCaseAndBraces(t *testing.T) {
	t.Parallel()
	if !sameID("{ABCD-12}", "abcd-12") || sameID("abcd-12", "abcd-13") {
		t.Error("identifiers are compared wrongly")
	}
}
