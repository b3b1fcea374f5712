package publish

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
)

// Source tells the published desired state, from memory.
type Source struct {
	mu         sync.RWMutex
	published  bool
	desired    blueprint.Desired
	facts      blueprint.Facts
	generation int64
	problems   []*contract.Problem
	// late keeps what is published from being what it must be, for longer than it should; nil for nothing.
	late *contract.Problem
	// lateTold is when somebody was told of it last.
	lateTold time.Time
	// lastRead are facts that may not be published yet; nil before any were read.
	lastRead    *blueprint.Facts
	subscribers []batch.Signal
}

// Current is the desired state whose manifest is published and may be read by the daemons, with the
// facts that it was rendered from. While there is none, or the facts no longer allow one, the error
// joins the problems. The caller must not change what it gets.
func (s *Source) Current(context.Context) (blueprint.Desired, blueprint.Facts, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if len(s.problems) > 0 || !s.published {
		return blueprint.Desired{}, blueprint.Facts{}, s.missing()
	}
	facts := s.facts
	if s.late != nil {
		facts.Troubles = append(slices.Clone(facts.Troubles), s.late)
	}
	return s.desired, facts, nil
}

// missing joins what keeps the desired state from being there.
func (s *Source) missing() error {
	if all := s.blocking(); len(all) > 0 {
		return contract.JoinProblems(all)
	}
	return contract.NewProblem(contract.ReasonManifestMissing, "no services manifest is published yet")
}

// blocking are the problems that nothing is published for. What is late is none while something is: hosts join
// at that.
func (s *Source) blocking() []*contract.Problem {
	if s.late == nil || s.published && len(s.problems) == 0 {
		return slices.Clone(s.problems)
	}
	return append(slices.Clone(s.problems), s.late)
}

// Problems are what keeps hosts from joining, as far as it lies with the cluster, its network, its
// revision or the payload.
func (s *Source) Problems() []*contract.Problem {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if all := s.blocking(); len(all) > 0 {
		return all
	}
	return slices.Clone(s.facts.Lacks)
}

// Changed gives a channel for one controller, to be called before the manager starts. It gets an
// event, about the WindowsMachineConfig, whenever Current, Problems or Published answer
// otherwise than before; events that nobody took are joined into one.
func (s *Source) Changed() <-chan event.GenericEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := batch.NewSignal()
	s.subscribers = append(s.subscribers, changed)
	return changed
}

// Published is what was published last, whether or not there are problems now, and the generation of the
// WindowsMachineConfig that it was rendered from. The caller must not change what it gets.
func (s *Source) Published() (desired blueprint.Desired, generation int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.desired, s.generation, s.published
}

// readFacts are the facts of the cluster that were read last, whether or not anything was published from them
// and whatever keeps hosts from joining; while none were read yet, the error says what keeps them from that, as
// a problem, or that it is too early. The caller must not change what it gets.
func (s *Source) readFacts() (blueprint.Facts, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	switch {
	case s.lastRead != nil:
		return *s.lastRead, nil
	case len(s.blocking()) > 0:
		return blueprint.Facts{}, s.missing()
	}
	return blueprint.Facts{}, errors.New("the facts of the cluster are not read yet")
}

func (s *Source) read(facts blueprint.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastRead = &facts
}

// Reserved are the addresses and names that no host has: those of the API server, of pods and of services. While
// some are not known, the error says so, and there are none. Whatever else keeps hosts from joining, nodes need
// serving certificates.
func (s *Source) Reserved(context.Context) ([]netip.Prefix, []string, error) {
	known, err := s.addresses()
	return known.Reserved(), known.ReservedNames(), err
}

// ServiceNetwork is the prefix of the cluster's service addresses; while some address is not known, an error.
func (s *Source) ServiceNetwork(context.Context) (netip.Prefix, error) {
	known, err := s.addresses()
	return known.ServiceNetwork, err
}

// addresses are facts that know which addresses and names no host has, or nothing.
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

// Platform is where the cluster runs, whatever keeps hosts from joining; an error before it was read.
func (s *Source) Platform(context.Context) (contract.Platform, error) {
	known, err := s.readFacts()
	return known.Platform, err
}

func (s *Source) set(desired blueprint.Desired, facts blueprint.Facts, generation int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := !s.published || s.generation != generation || len(s.problems) > 0 ||
		s.desired.Revision != desired.Revision ||
		!bytes.Equal(s.desired.KubeletFragment, desired.KubeletFragment) ||
		!slices.EqualFunc(s.desired.Rejected, desired.Rejected, contract.Same) ||
		!slices.EqualFunc(s.facts.Lacks, facts.Lacks, contract.Same) ||
		!slices.EqualFunc(s.facts.Troubles, facts.Troubles, contract.Same)
	s.published, s.desired, s.facts, s.generation, s.problems = true, desired, facts, generation, nil
	if changed {
		s.tell()
	}
}

func (s *Source) fail(problems []*contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	changed := !slices.EqualFunc(s.problems, problems, contract.Same)
	s.problems = problems
	if changed {
		s.tell()
	}
}

// setLate notes what is late, or that nothing is. It answers whether that begins or ends. Other details are told no
// more than once a minute: some errors say something else each time.
func (s *Source) setLate(problem *contract.Problem, now time.Time) (turns bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	turns = (s.late == nil) != (problem == nil)
	differs := s.late != nil && problem != nil && !contract.Same(s.late, problem)
	s.late = problem
	if turns || differs && now.Sub(s.lateTold) >= lateAfter {
		s.lateTold = now
		s.tell()
	}
	return turns
}

func (s *Source) tell() {
	about := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	for _, subscriber := range s.subscribers {
		subscriber.Send(about)
	}
}
