package sim

import (
	"fmt"
	"maps"
	"sync"
)

// ports is the table of TCP listeners.
type ports struct {
	mu      sync.Mutex
	own     map[int]listener
	foreign map[int]string
}

type listener struct {
	program string
	process *process
}

func newPorts() *ports { return &ports{own: map[int]listener{}, foreign: map[int]string{}} }

func (t *ports) all() map[int]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.foreign)
	for port, l := range t.own {
		all[port] = l.program
	}
	return all
}

func (t *ports) listen(port int, program string, p *process) (release func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, taken := t.own[port]; taken {
		return nil, fmt.Errorf("listening on port %d: %s listens there", port, l.program)
	}
	if other, taken := t.foreign[port]; taken {
		return nil, fmt.Errorf("listening on port %d: %s listens there", port, other)
	}
	mine := listener{program: program, process: p}
	t.own[port] = mine
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.own[port] == mine {
			delete(t.own, port)
		}
	}, nil
}

func (t *ports) releaseAll(p *process) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.own, func(_ int, l listener) bool { return l.process == p })
}

func (t *ports) setForeign(port int, program string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if program == "" {
		delete(t.foreign, port)
		return
	}
	t.foreign[port] = program
}
