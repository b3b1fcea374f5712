package publish

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// lacking returns a source whose facts are incomplete for this reason.
func lacking(reason contract.Reason) *Source {
	facts := known()
	facts.Lacks = []*contract.Problem{contract.NewProblem(reason, "x")}
	return reading(facts)
}

// reading returns a source that has read these facts but published nothing.
func reading(facts blueprint.Facts) *Source {
	s := &Source{}
	s.update(func(s *state) { s.read = &facts })
	return s
}

func known() blueprint.Facts {
	network := netip.MustParsePrefix("10.96.0.0/12")
	return blueprint.Facts{APIServer: "https://10.0.0.5:6443", Platform: contract.PlatformVSphere,
		Network: blueprint.Network{ServiceNetwork: network, ServiceNetworks: []netip.Prefix{network}}}
}

// Even if hosts can't join, the serving certificates of existing nodes must be renewed. Exception: while the operator
// doesn't know which addresses are reserved, no serving certificate is approved.
func TestOnlyAFactThatIsNotKnownHoldsServingCertificates(t *testing.T) {
	t.Parallel()
	for reason, holds := range map[contract.Reason]bool{
		contract.ReasonClusterFactsIncomplete: true, contract.ReasonBootstrapNotGranted: false,
	} {
		if _, _, err := lacking(reason).Reserved(t.Context()); (err != nil) != holds {
			t.Errorf("%s: %v", reason, err)
		}
	}
}

// If the reserved addresses could not be read, no address may count as free.
func TestAddressesThatWereNotReadHoldServingCertificates(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*blueprint.Facts){
		"nothing":               func(f *blueprint.Facts) { *f = blueprint.Facts{} },
		"no prefix of services": func(f *blueprint.Facts) { f.ServiceNetwork = netip.Prefix{} },
		"no API server":         func(f *blueprint.Facts) { f.APIServer = "" },
	} {
		facts := known()
		change(&facts)
		read := reading(facts)
		if all, names, err := read.Reserved(t.Context()); err == nil || len(all)+len(names) > 0 {
			t.Errorf("%s: %v, %v, %v", name, all, names, err)
		}
		if prefix, err := read.ServiceNetwork(t.Context()); err == nil || prefix.IsValid() {
			t.Errorf("%s: %v, %v", name, prefix, err)
		}
	}
	facts := reading(known())
	all, _, err := facts.Reserved(t.Context())
	if err != nil || !slices.Contains(all, netip.MustParsePrefix("10.0.0.5/32")) {
		t.Errorf("the reserved addresses are %v, %v", all, err)
	}
	if prefix, err := facts.ServiceNetwork(t.Context()); err != nil || prefix != known().ServiceNetwork {
		t.Errorf("services have %v, %v", prefix, err)
	}
}

// The platform of a cluster never changes, so it is known even while hosts can't join.
func TestThePlatformIsKnownWhileHostsCanNotJoin(t *testing.T) {
	t.Parallel()
	known, err := lacking(contract.ReasonVersionUnsupported).Platform(t.Context())
	if known != contract.PlatformVSphere || err != nil {
		t.Errorf("%q, %v", known, err)
	}
}
