// Package problem stores the problems that controllers find. Each controller sets its problems, and the writer of the
// WindowsMachineConfig's status reads them. Events report the same problems, but expire.
//
// The problems are only in memory.
package problem

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/controller/batch"
)

// State contains the problems, by the name of the controller that found them.
type State struct {
	mu       sync.Mutex
	problems map[string][]*contract.Problem
	changed  batch.Signal
}

// NewState creates a State without problems.
func NewState() *State {
	return &State{problems: map[string][]*contract.Problem{}, changed: batch.NewSignal()}
}

// Problems returns all problems.
func (s *State) Problems() (all []*contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, controller := range slices.Sorted(maps.Keys(s.problems)) {
		all = append(all, s.problems[controller]...)
	}
	return all
}

// Changed returns a channel that receives an event when the problems have changed. Only one reader may use it.
func (s *State) Changed() <-chan event.GenericEvent { return s.changed }

// Set replaces the problems of a controller. It returns the problems that the controller didn't have before.
func (s *State) Set(controller string, problems []*contract.Problem) (fresh []*contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.problems[controller]
	for _, p := range problems {
		if !slices.ContainsFunc(before, func(old *contract.Problem) bool { return contract.Same(old, p) }) {
			fresh = append(fresh, p)
		}
	}
	s.problems[controller] = problems
	if len(fresh) > 0 || len(problems) != len(before) {
		s.changed.Send(&v1alpha1.WindowsMachineConfig{
			ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}})
	}
	return fresh
}

// OfCreate classifies the error of a failed creation of an instance. If the API server refuses the instance until a
// user changes something, OfCreate returns a problem. If the instance already exists, OfCreate returns nil twice: the
// cache will show the instance and send an event.
func OfCreate(instance string, err error) (*contract.Problem, error) {
	switch {
	case apierrors.IsAlreadyExists(err):
		return nil, nil
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsNotFound(err),
		apierrors.IsMethodNotSupported(err): // in the last two cases, the CRD is absent or being deleted
		return contract.NewProblem(contract.ReasonInstanceRefused, "WindowsInstance %s can't be made: %v", instance,
			err), nil
	}
	return nil, fmt.Errorf("creating instance %s: %w", instance, err)
}

// named is the maximum number of details that Sum includes for each reason.
const named = 3

// Sum sorts problems by reason, and merges problems with the same reason, because many hosts may have one problem.
func Sum(problems []*contract.Problem) (all []*contract.Problem) {
	details := map[contract.Reason][]string{}
	for _, problem := range problems {
		details[problem.Reason] = append(details[problem.Reason], problem.Detail)
	}
	for _, reason := range slices.Sorted(maps.Keys(details)) {
		each := slices.Sorted(slices.Values(details[reason]))
		all = append(all, contract.NewProblem(reason, "%s", contract.Few(each, named, "; ")))
	}
	return all
}
