package sim

import (
	"fmt"
	"maps"
	"net"
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
	// socket is the open socket. It is nil if the port is only reserved in the table.
	socket net.Listener
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
	return t.enter(port, listener{program: program, process: p})
}

func (t *ports) enter(port int, mine listener) (release func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l, taken := t.own[port]; taken {
		return nil, fmt.Errorf("listening on port %d: %s listens there", port, l.program)
	}
	if other, taken := t.foreign[port]; taken {
		return nil, fmt.Errorf("listening on port %d: %s listens there", port, other)
	}
	t.own[port] = mine
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.own[port] == mine {
			delete(t.own, port)
		}
	}, nil
}

// releaseAll closes all listeners of a process.
func (t *ports) releaseAll(p *process) {
	t.mu.Lock()
	var sockets []net.Listener
	maps.DeleteFunc(t.own, func(_ int, l listener) bool {
		if l.process == p && l.socket != nil {
			sockets = append(sockets, l.socket)
		}
		return l.process == p
	})
	t.mu.Unlock()
	for _, s := range sockets {
		_ = s.Close()
	}
}

// socket returns the socket that listens on a port. It returns nil if there is none.
func (t *ports) socket(port int) net.Listener {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.own[port].socket
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
