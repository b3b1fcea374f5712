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

// Source returns the published desired state from memory.
type Source struct {
	mu         sync.RWMutex
	published  bool
	desired    blueprint.Desired
	facts      blueprint.Facts
	generation int64
	problems   []*contract.Problem
	// late is a failure that has kept the published state outdated for too long, or nil.
	late *contract.Problem
	// lateTold is when subscribers were last notified of late.
	lateTold time.Time
	// lastRead are the last facts. They may not be published yet. nil means that none have been read.
	lastRead    *blueprint.Facts
	subscribers []batch.Signal
}

// Current returns the desired state whose manifest is published and may be read by the daemons, with the facts that
// it was rendered from. If there is no such state, or if the facts no longer allow one, the error joins the
// problems. The caller must not change the result.
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

// missing joins the problems that prevent a desired state.
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

// Problems returns the problems that keep hosts from joining and that concern the cluster, its network, its
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

// Published returns the last published state, even if there are problems now, and the generation of the
// WindowsMachineConfig that it was rendered from. The caller must not change the result.
func (s *Source) Published() (desired blueprint.Desired, generation int64, ok bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.desired, s.generation, s.published
}

// readFacts returns the last facts of the cluster, even if they are not published or if problems keep hosts from
// joining. If no facts have been read yet, the error is the problem that keeps hosts from joining, or says that it
// is too early. The caller must not change the result.
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

// ServiceNetwork returns the prefix of the cluster's service addresses. While an address is unknown, it returns an
// error.
func (s *Source) ServiceNetwork(context.Context) (netip.Prefix, error) {
	known, err := s.addresses()
	return known.ServiceNetwork, err
}

// addresses returns facts with all reserved addresses and names. While some are unknown, it returns no facts.
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

// Platform returns the cluster's platform, even if problems keep hosts from joining. Before the platform is read,
// it returns an error.
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
