package publish

import (
	"context"
	"errors"
	"net/netip"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
)

// Source returns the published desired state, and related facts and problems, from memory.
type Source struct {
	mu          sync.RWMutex
	state       state
	subscribers []batch.Signal
}

type state struct {
	// If published is true, desired is the published state. facts and generation are its inputs.
	published  bool
	desired    blueprint.Desired
	facts      blueprint.Facts
	generation int64
	// problems are the reasons why no newer desired state can be rendered now.
	problems []*contract.Problem
	// late is a failure that has kept the published state outdated for too long, or nil.
	late *contract.Problem
	// read contains the facts that were read last, published or not. It is nil if no facts have been read.
	read *blueprint.Facts
}

// update changes the state. If the result of Current, Problems or Published changes, update notifies subscribers.
func (s *Source) update(change func(*state)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := func() []any {
		return []any{s.state.published, s.state.desired.Revision, s.state.desired.KubeletFragment,
			s.state.desired.Rejected, s.state.facts.Lacks, s.state.facts.Troubles, s.state.generation,
			s.state.problems, s.state.late}
	}
	before := shown()
	change(&s.state)
	if reflect.DeepEqual(before, shown()) {
		return
	}
	about := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	for _, subscriber := range s.subscribers {
		subscriber.Send(about)
	}
}

// Current returns the published desired state, and the facts that it was rendered from. If no state is published, or if
// the current facts don't allow a desired state, the error joins all problems. The caller must not change the result.
func (s *Source) Current(context.Context) (blueprint.Desired, blueprint.Facts, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.state.problems) > 0 || !s.state.published {
		return blueprint.Desired{}, blueprint.Facts{}, s.missing()
	}
	facts := s.state.facts
	if s.state.late != nil {
		facts.Troubles = append(slices.Clone(facts.Troubles), s.state.late)
	}
	return s.state.desired, facts, nil
}

func (s *Source) missing() error {
	if all := s.blocking(); len(all) > 0 {
		return contract.JoinProblems(all)
	}
	return contract.NewProblem(contract.ReasonManifestMissing, "no services manifest is published yet")
}

// The method `blocking` returns the problems that prevent hosts from joining. If a revision is published and nothing
// else is wrong, a late failure prevents no join, because hosts join at that revision.
func (s *Source) blocking() []*contract.Problem {
	if s.state.late == nil || s.state.published && len(s.state.problems) == 0 {
		return slices.Clone(s.state.problems)
	}
	return append(slices.Clone(s.state.problems), s.state.late)
}

// Problems returns what prevents all hosts from joining: problems of the cluster, network, revision or payload.
func (s *Source) Problems() []*contract.Problem {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if all := s.blocking(); len(all) > 0 {
		return all
	}
	return slices.Clone(s.state.facts.Lacks)
}

// Changed returns a channel for one controller. Call it before the manager starts. Whenever the result of Current,
// Problems or Published changes, the channel receives an event. Events that the controller hasn't received yet are
// merged.
func (s *Source) Changed() <-chan event.GenericEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := batch.NewSignal()
	s.subscribers = append(s.subscribers, changed)
	return changed
}

// Published returns the desired state that was published last, even if there are problems now, and the generation of
// the WindowsMachineConfig that the state was rendered from. The caller must not change the result.
func (s *Source) Published() (desired blueprint.Desired, generation int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.state.desired, s.state.generation, s.state.published
}

// readFacts returns the facts that were read last, even if hosts can't join with them. If no facts have been read, the
// error says why. The caller must not change the result.
func (s *Source) readFacts() (blueprint.Facts, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.state.read != nil:
		return *s.state.read, nil
	case len(s.blocking()) > 0:
		return blueprint.Facts{}, s.missing()
	}
	return blueprint.Facts{}, errors.New("the facts of the cluster are not read yet")
}

// Reserved returns the addresses and names that no host may have: the names and addresses of the API server, and the
// networks of pods and services. If not all of them are known, it returns an error. It ignores other problems, because
// existing nodes still need serving certificates.
func (s *Source) Reserved(context.Context) ([]netip.Prefix, []string, error) {
	known, err := s.addresses()
	return known.Reserved(), known.ReservedNames(), err
}

// ServiceNetwork returns the prefix of the cluster's service addresses. If a reserved address is unknown, it fails.
func (s *Source) ServiceNetwork(context.Context) (netip.Prefix, error) {
	known, err := s.addresses()
	return known.ServiceNetwork, err
}

// addresses returns the facts that were read last, unless they lack reserved addresses or names.
func (s *Source) addresses() (blueprint.Facts, error) {
	known, err := s.readFacts()
	if err == nil {
		err = known.Unknown()
	}
	if err != nil {
		return blueprint.Facts{}, err
	}
	return known, nil
}

// Platform returns the cluster's platform, even if hosts can't join. While the platform is unknown, it fails.
func (s *Source) Platform(context.Context) (contract.Platform, error) {
	known, err := s.readFacts()
	return known.Platform, err
}
