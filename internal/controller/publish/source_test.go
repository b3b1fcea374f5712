package publish

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Serving certificates of nodes that have joined are decided by them.
func TestTheFactsThatWereReadLastStayWhateverKeepsHostsFromJoining(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	source := w.publisher.source
	if _, err := source.LastRead(); err == nil {
		t.Error("there are facts before any were read")
	}
	away := contract.NewProblem(contract.ReasonClusterFactsIncomplete, "away")
	w.facts.answer(func(s *factsStub) { s.err = away })
	w.publish(t)
	if _, err := source.LastRead(); !errors.Is(err, away) {
		t.Errorf("facts that were never read: %v", err)
	}
	pods := netip.MustParsePrefix("10.128.0.0/14")
	w.facts.answer(func(s *factsStub) {
		s.err, s.facts.KubernetesVersion, s.facts.PodNetworks = nil, "v1.35.0", []netip.Prefix{pods}
	})
	w.publish(t)
	if problems := source.Problems(); len(problems) != 1 ||
		problems[0].Reason != contract.ReasonVersionUnsupported {
		t.Fatalf("problems are %v", problems)
	}
	read := func(why string) {
		facts, err := source.LastRead()
		if err != nil || len(facts.PodNetworks) != 1 || facts.PodNetworks[0] != pods {
			t.Errorf("%s: pods have %v, %v", why, facts.PodNetworks, err)
		}
	}
	read("no kubelet fits the cluster")
	w.facts.answer(func(s *factsStub) { s.err = away })
	w.publish(t)
	read("a fact can't be read any more")
	w.facts.answer(func(s *factsStub) { s.err = errors.New("timeout") })
	if _, err := w.publisher.Reconcile(t.Context(), request()); err == nil {
		t.Error("it is not tried again")
	}
	read("the API server is away")
}
