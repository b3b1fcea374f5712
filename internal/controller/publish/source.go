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
	// lateTold is when subscribers were last notified of it.
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

// blocking returns the problems that prevent publishing. A late failure doesn't block while a revision is published:
// hosts join at that revision.
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

// Changed returns a channel for one controller. Call it before the manager starts. Whenever the result of Current,
// Problems or Published changes, the channel gets an event about the WindowsMachineConfig. Events that are still queued
// are merged into one.
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

// Reserved returns the addresses and names that no host may have: the API server's, and those in the networks of pods
// and services. While some are unknown, it returns none and an error. Nodes need serving certificates, so other causes
// that keep hosts from joining don't count here.
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

// setLate records the late failure, or that there is none. It reports whether the failure begins or ends. Changed
// details are sent at most once a minute, because some errors have another text each time.
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
