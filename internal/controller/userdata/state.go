package userdata

import (
	"sync"

	"github.com/windows-nodes/wmco/internal/controller/problem"
)

// State tells what keeps user data from being what it must be, from memory. A key that is missing or
// can't be used is none of its problems: others say that.
type State struct {
	*problem.State
	mu sync.Mutex
	// held is the hash of the public key that Machines are made with; empty while nobody knows.
	held string
}

func newState() *State { return &State{State: problem.NewState()} }

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
