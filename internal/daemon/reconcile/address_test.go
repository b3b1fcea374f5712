package reconcile_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const reserved = state.DirCNIState + `\networks\` + contract.HybridOverlayNetwork

// reservations returns the reserved addresses, which host-local does not assign to pods, and the content of their
// files.
func (r *rig) reservations(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	entries, err := r.Host().Files.List(reserved)
	if err != nil {
		return all
	}
	for _, e := range entries {
		content, err := winos.ReadFile(r.Host().Files, reserved+`\`+e.Name)
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name] = string(content)
	}
	return all
}

// HNS takes the address of kube-proxy's endpoint from the same range as host-local, which only knows the addresses in
// its files. Without a reservation, the plugin's first pod would get the endpoint's address.
func TestNoPodGetsTheAddressOfKubeProxysEndpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		endpoint := func() string {
			t.Helper()
			address, err := r.Host().Network.EnsureEndpoint(t.Context(), contract.HybridOverlayNetwork,
				contract.SourceVIPEndpointName, netip.Addr{})
			if err != nil {
				t.Fatal(err)
			}
			return address.String()
		}
		first := endpoint()
		if all := r.reservations(t); len(all) != 1 || all[first] == "" {
			t.Fatalf("the reserved addresses are %v, want %s", all, first)
		}

		t.Log("after a boot, the network is a new one, and a pod's file reserves the next address")
		if err := r.Host().Network.RemoveHNSNetwork(t.Context(), contract.HybridOverlayNetwork); err != nil {
			t.Fatal(err)
		}
		r.overlay(t)
		if _, err := r.Host().Network.EnsureEndpoint(t.Context(), contract.HybridOverlayNetwork, "another",
			netip.Addr{}); err != nil {
			t.Fatal(err)
		}
		second := endpoint()
		pod := strings.Repeat("0123456789abcdef", 4) + "\r\neth0"
		r.write(t, reserved+`\`+second, pod)
		pass(5 * time.Minute)
		if all := r.reservations(t); second == first || all[second] != pod {
			t.Errorf("the reserved addresses are %v; a pod's reservation was changed", all)
		}
		if err := r.Host().Files.Remove(reserved + `\` + second); err != nil {
			t.Fatal(err)
		}
		pass(5 * time.Minute)
		if all := r.reservations(t); len(all) != 1 || all[second] == "" {
			t.Errorf("the reserved addresses are %v, want %s", all, second)
		}
	})
}

// After a boot, kube-proxy starts with the address that its endpoint had before the boot. If no endpoint has this
// address, kube-proxy creates an endpoint without a name (kubernetes pkg/proxy/winkernel/proxier.go, newSourceVIP).
func TestAfterABootTheSourceAddressStaysAndHasOneEndpoint(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		holds(t, r)
		remade := func(others ...sim.HNSEndpoint) []sim.HNSEndpoint {
			t.Helper()
			if err := r.Host().Network.RemoveHNSNetwork(t.Context(), contract.HybridOverlayNetwork); err != nil {
				t.Fatal(err)
			}
			r.overlay(t)
			for _, e := range others {
				if err := r.AddHNSEndpoint(contract.HybridOverlayNetwork, e); err != nil {
					t.Fatal(err)
				}
			}
			pass(5 * time.Minute)
			all, err := r.HNSEndpoints(contract.HybridOverlayNetwork)
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		pod := sim.HNSEndpoint{Name: "a pod", Address: netip.MustParseAddr("10.132.1.2")}
		mine := sim.HNSEndpoint{Name: contract.SourceVIPEndpointName, Address: netip.MustParseAddr("10.132.1.3"),
			Attached: true}
		if all := remade(pod); !slices.Equal(all, []sim.HNSEndpoint{pod, mine}) {
			t.Fatalf("with a pod's endpoint, the endpoints are %+v", all)
		}
		t.Log("HNS would assign the first address")
		if all := remade(); !slices.Equal(all, []sim.HNSEndpoint{mine}) {
			t.Errorf("on a new network, the endpoints are %+v", all)
		}
		adopted := sim.HNSEndpoint{Address: mine.Address, Attached: true}
		if all := remade(sim.HNSEndpoint{Address: mine.Address}); !slices.Equal(all, []sim.HNSEndpoint{adopted}) {
			t.Errorf("with kube-proxy's own endpoint, the endpoints are %+v", all)
		}
		if all := r.reservations(t); len(all) != 1 || all[mine.Address.String()] == "" {
			t.Errorf("the reserved addresses are %v, want %s", all, mine.Address)
		}
		if config := r.read(t, contract.PathKubeProxyConfig); config != "vip: "+mine.Address.String() {
			t.Errorf("kube-proxy is configured with %q", config)
		}
	})
}
