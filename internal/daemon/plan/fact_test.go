package plan_test

import (
	"io"
	"net/http"
	"net/netip"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestFactsOfAHost(t *testing.T) {
	t.Parallel()
	m, err := sim.New(sim.Options{Hostname: "WIN-A", Address: netip.MustParseAddr("10.0.0.7")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	before := plan.HostFacts(t.Context(), m.Host(), contract.HybridOverlayNetwork, nil)
	for f, want := range map[contract.Fact]contract.Reason{
		contract.FactSourceVIP: contract.ReasonNetworkPending, contract.FactHNSSubnet: contract.ReasonNetworkPending,
		contract.FactManagementIP: contract.ReasonNetworkPending, "moon": contract.ReasonManifestInvalid,
	} {
		if value, problem := before(f); problem == nil || problem.Reason != want {
			t.Errorf("%s: %q, %v", f, value, problem)
		}
	}
	network := winos.HNSNetwork{Name: contract.HybridOverlayNetwork, Subnet: netip.MustParsePrefix("10.132.1.0/24"),
		ManagementIP: netip.MustParseAddr("10.0.0.7")}
	if _, err = m.CreateHNSNetwork(network); err != nil {
		t.Fatal(err)
	}
	after := plan.HostFacts(t.Context(), m.Host(), contract.HybridOverlayNetwork, nil)
	for range 2 {
		for f, want := range map[contract.Fact]string{
			contract.FactHostname: "win-a", contract.FactNodeIP: "10.0.0.7", contract.FactSourceVIP: "10.132.1.2",
			contract.FactHNSSubnet:    "10.132.1.0/24",
			contract.FactManagementIP: "10.0.0.7",
		} {
			if value, problem := after(f); problem != nil || value != want {
				t.Errorf("%s: %q, %v", f, value, problem)
			}
		}
	}
	m.SetNoRoute(true)
	if _, problem := plan.HostFacts(t.Context(), m.Host(), contract.HybridOverlayNetwork, nil)(contract.FactNodeIP); problem == nil ||
		problem.Reason != contract.ReasonNoDefaultRoute {
		t.Errorf("without a route: %v", problem)
	}
	values := plan.HostFacts(t.Context(), m.Host(), contract.HybridOverlayNetwork,
		map[contract.Fact]string{contract.FactNodeIP: "10.9.9.9", contract.FactAWSHostname: ""})
	if value, problem := values(contract.FactNodeIP); problem != nil || value != "10.9.9.9" {
		t.Errorf("a fact that is already known: %q, %v", value, problem)
	}
	if value, problem := values(contract.FactAWSHostname); problem == nil ||
		problem.Reason != contract.ReasonMetadataUnavailable {
		t.Errorf("the name from an unknown cloud: %q, %v", value, problem)
	}
	m.SetMetadata(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		_, _ = io.WriteString(w, "Win-A.c.project.internal")
	}), false)
	if value, problem := plan.HostFacts(t.Context(), m.Host(), contract.HybridOverlayNetwork, nil)(contract.FactGCPHostname); problem != nil ||
		value != "win-a.c.project.internal" {
		t.Errorf("the name from Google: %q, %v", value, problem)
	}
}

func TestValuesOfANode(t *testing.T) {
	t.Parallel()
	const subnet = `{.metadata.annotations.k8s\.ovn\.org/hybrid-overlay-node-subnet}`
	node := map[string]any{"metadata": map[string]any{"name": "win-a",
		"annotations": map[string]any{"k8s.ovn.org/hybrid-overlay-node-subnet": "10.132.1.0/24"}}}
	bare := map[string]any{"metadata": map[string]any{"name": "win-a"}}
	for name, c := range map[string]struct {
		node       map[string]any
		remembered map[string]string
		path       plan.Path
		want       string
		reason     contract.Reason
	}{
		"a field":              {node, nil, "{.metadata.name}", "win-a", ""},
		"an annotation":        {node, nil, subnet, "10.132.1.0/24", ""},
		"a missing annotation": {bare, nil, subnet, "", contract.ReasonNetworkPending},
		"a missing field":      {bare, nil, "{.spec.podCIDR}", "", contract.ReasonNodePending},
		"no Node":              {nil, nil, "{.metadata.name}", "", contract.ReasonNodePending},
		"no Node, but an earlier value": {nil, map[string]string{"{.metadata.name}": "win-b"}, "{.metadata.name}",
			"win-b", ""},
		"the Node's value wins": {node, map[string]string{"{.metadata.name}": "win-b"}, "{.metadata.name}",
			"win-a", ""},
		"an earlier value that was removed": {bare, map[string]string{subnet: "10.1.0.0/24"}, subnet, "10.1.0.0/24", ""},
		"an invalid JSONPath":               {node, nil, "{.metadata", "", contract.ReasonManifestInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			value, problem := plan.NodeFields(c.node, c.remembered)(c.path)
			if value != c.want || (problem == nil) != (c.reason == "") || problem != nil && problem.Reason != c.reason {
				t.Errorf("%q, %v", value, problem)
			}
		})
	}
}

func TestA60_FactsOfTheNetworkAreThoseOfTheOneThatTheManifestNames(t *testing.T) {
	t.Parallel()
	m, err := sim.New(sim.Options{Hostname: "win-a", Address: netip.MustParseAddr("10.0.0.7")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	const name = "flannel.4096"
	manifest := contract.Manifest{PodNetwork: name}
	for network, subnet := range map[string]string{contract.HybridOverlayNetwork: "10.132.1.0/24", name: "10.244.1.0/24"} {
		if _, err = m.CreateHNSNetwork(winos.HNSNetwork{Name: network, Subnet: netip.MustParsePrefix(subnet)}); err != nil {
			t.Fatal(err)
		}
	}
	facts := plan.HostFacts(t.Context(), m.Host(), manifest.HNSNetwork(), nil)
	for f, want := range map[contract.Fact]string{contract.FactHNSSubnet: "10.244.1.0/24",
		contract.FactSourceVIP: "10.244.1.2"} {
		if value, problem := facts(f); problem != nil || value != want {
			t.Errorf("%s: %q, %v", f, value, problem)
		}
	}
	if value, problem := facts(contract.FactFlannelKubeconfig); problem == nil ||
		problem.Reason != contract.ReasonTokenPending {
		t.Errorf("without a token: %q, %v", value, problem)
	}
}
