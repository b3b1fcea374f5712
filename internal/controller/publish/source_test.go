package publish

import (
	"errors"
	"net/netip"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Serving certificates of existing nodes depend on the last facts. So these facts must be available even if problems
// prevent hosts from joining.
func TestTheFactsThatWereReadLastStayWhateverKeepsHostsFromJoining(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	source := w.publisher.source
	if _, err := source.readFacts(); err == nil {
		t.Error("there are facts before the first read")
	}
	away := contract.NewProblem(contract.ReasonClusterFactsIncomplete, "away")
	w.facts.answer(func(s *factsStub) { s.err = away })
	w.publish(t)
	if _, err := source.readFacts(); !errors.Is(err, away) {
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
		facts, err := source.readFacts()
		if err != nil || len(facts.PodNetworks) != 1 || facts.PodNetworks[0] != pods {
			t.Errorf("%s: the pod networks are %v, %v", why, facts.PodNetworks, err)
		}
	}
	read("no kubelet fits the cluster")
	w.facts.answer(func(s *factsStub) { s.err = away })
	w.publish(t)
	read("a fact can't be read any more")
	w.facts.answer(func(s *factsStub) { s.err = errors.New("timeout") })
	if _, err := w.publisher.Reconcile(t.Context(), request()); err == nil {
		t.Error("the pass is not retried")
	}
	read("the API server is away")
}

// A change of the settings that leads to no new revision must also be reported as rendered.
func TestTheSourceTellsWhichGenerationOfTheSettingsIsRendered(t *testing.T) {
	t.Parallel()
	w := newWorld(t, &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject,
		Generation: 1}})
	source := w.publisher.source
	changed := source.Changed()
	w.publish(t)
	first, rendered, _ := source.Published()
	if <-changed; rendered != 1 {
		t.Errorf("generation %d is rendered", rendered)
	}
	config := &v1alpha1.WindowsMachineConfig{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Name: contract.MachineConfigObject}, config); err != nil {
		t.Fatal(err)
	}
	config.Generation = 2
	if err := w.client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	w.facts.answer(func(s *factsStub) { s.err = errors.New("timeout") })
	_, err := w.pass(t)
	if _, rendered, _ = source.Published(); err == nil || rendered != 1 || len(changed) > 0 {
		t.Errorf("generation %d is rendered, %v", rendered, err)
	}
	w.facts.answer(func(s *factsStub) { s.err = nil })
	w.publish(t)
	second, rendered, _ := source.Published()
	if rendered != 2 || len(changed) != 1 || second.Revision != first.Revision {
		t.Errorf("generation %d is rendered, %d changes are reported", rendered, len(changed))
	}
}
