package userdata

import (
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// State tells what keeps user data from being what it must be, from memory.
type State struct {
	mu       sync.Mutex
	problems []*contract.Problem
	// held is the hash of the public key that Machines are made with; empty while nobody knows.
	held    string
	changed chan event.GenericEvent
}

func newState() *State { return &State{changed: make(chan event.GenericEvent, 1)} }

// Problems are what is wrong with the secrets of user data. A key that is missing or can't be used
// is none of them: others say that.
func (s *State) Problems() []*contract.Problem {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.problems)
}

// Holds says whether Machines of the Machine API that are made now authorise a key, by its hash.
// While somebody else's user data is there, or none, it is no.
func (s *State) Holds(publicKeyHash string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return publicKeyHash != "" && s.held == publicKeyHash
}

func (s *State) hold(publicKeyHash string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = publicKeyHash
}

// Changed delivers when Problems answers otherwise than before. It is for one reader.
func (s *State) Changed() <-chan event.GenericEvent { return s.changed }

// set gives the problems that were not there before.
func (s *State) set(problems []*contract.Problem) (fresh []*contract.Problem) {
	s.mu.Lock()
	defer s.mu.Unlock()
	known := func(p *contract.Problem) bool {
		return slices.ContainsFunc(s.problems, func(old *contract.Problem) bool { return *old == *p })
	}
	for _, p := range problems {
		if !known(p) {
			fresh = append(fresh, p)
		}
	}
	differs := len(fresh) > 0 || len(problems) != len(s.problems)
	s.problems = problems
	if differs {
		select {
		case s.changed <- event.GenericEvent{
			Object: &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}}:
		default: // one is waiting there already
		}
	}
	return fresh
}
