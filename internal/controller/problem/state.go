// Package problem answers what a controller finds wrong now: one controller sets it, and the one that
// writes the status of the WindowsMachineConfig reads it, for as long as it lasts. Events tell of the
// same, and expire.
//
// It keeps nothing beyond the process, and judges nothing but what the API server refuses.
package problem

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
)

// State holds the problems.
type State struct {
	mu       sync.Mutex
	problems []*contract.Problem
	changed  batch.Signal
}

// NewState makes one without a problem.
func NewState() *State { return &State{changed: batch.NewSignal()} }

// Problems are those of the last Set.
func (s *State) Problems() []*contract.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// Changed delivers when Problems answers otherwise than before. It is for one reader.
func (s *State) Changed() <-chan event.GenericEvent { return s.changed }

// Set takes all problems that there are now, and gives those that were not there before.
func (s *State) Set(problems []*contract.Problem) (fresh []*contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range problems {
		if !slices.ContainsFunc(s.problems, func(old *contract.Problem) bool { return contract.Same(old, p) }) {
			fresh = append(fresh, p)
		}
	}
	differs := len(fresh) > 0 || len(problems) != len(s.problems)
	s.problems = problems
	if differs {
		s.changed.Send(&v1alpha1.WindowsMachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}})
	}
	return fresh
}

// OfCreate tells what it means that an instance could not be made. What the API server refuses until somebody changes
// something is a problem. One that exists is neither that nor an error: the cache has yet to see it, which is an event.
func OfCreate(instance string, err error) (*contract.Problem, error) {
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err),
		apierrors.IsMethodNotSupported(err): // the last two while its kind is absent, or being deleted
		return contract.NewProblem(contract.ReasonInstanceRefused, "WindowsInstance %s can't be made: %v", instance,
			err), nil
	}
	return nil, fmt.Errorf("creating instance %s: %w", instance, err)
}

// named is how many details are told of each reason.
const named = 3

// Sum makes one problem of all that have the same reason, sorted by reason: hundreds of hosts may have the same.
func Sum(problems []*contract.Problem) (all []*contract.Problem) {
	details := map[contract.Reason][]string{}
	for _, problem := range problems {
		details[problem.Reason] = append(details[problem.Reason], problem.Detail)
	}
	for _, reason := range slices.Sorted(maps.Keys(details)) {
		each := slices.Sorted(slices.Values(details[reason]))
		text := strings.Join(each[:min(named, len(each))], "; ")
		if more := len(each) - named; more > 0 {
			text += fmt.Sprintf("; and %d more", more)
		}
		all = append(all, contract.NewProblem(reason, "%s", text))
	}
	return all
}
