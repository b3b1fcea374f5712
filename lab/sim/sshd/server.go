package sshd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
)

// Options of a server.
type Options struct {
	// Machine stands behind the server. Required.
	Machine Machine
	// Listen is the address and port, usually one of 127.0.0.0/8. Port 0 takes a free one and keeps
	// it for good. Required.
	Listen netip.AddrPort
	// Settings to begin with. A nil HostKey makes an Ed25519 key, and nil FurtherHostKeys an ECDSA
	// key.
	Settings Settings
}

// Server is a running SSH server.
type Server struct {
	machine Machine
	address netip.AddrPort
	network network
	group   sync.WaitGroup
	stop    context.CancelFunc
	changes chan chan struct{}
	ended   chan struct{}

	mu    sync.Mutex
	wires map[*wire]struct{}
}

// relistenDelay is how long to wait before trying again to get the server's port back, which
// another program may hold for a moment as its own end of a connection.
const relistenDelay = 20 * time.Millisecond

// Start waits until the machine is up, listens, and serves until ctx is cancelled or Close is
// called.
func Start(ctx context.Context, o Options) (*Server, error) {
	if o.Settings.HostKey == nil {
		key, err := NewHostKey()
		if err != nil {
			return nil, err
		}
		o.Settings.HostKey = key
	}
	if o.Settings.FurtherHostKeys == nil {
		key, err := newECDSAHostKey()
		if err != nil {
			return nil, err
		}
		o.Settings.FurtherHostKeys = []ssh.Signer{key}
	}
	down, err := o.Machine.WaitBoot(ctx)
	if err != nil {
		return nil, fmt.Errorf("waiting for the machine to boot: %w", err)
	}
	listener, err := listen(ctx, o.Listen)
	if err != nil {
		return nil, err
	}
	address, err := netip.ParseAddrPort(listener.Addr().String())
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the address listened on: %w", err), listener.Close())
	}
	ctx, stop := context.WithCancel(ctx)
	s := &Server{
		machine: o.Machine,
		address: address,
		stop:    stop,
		changes: make(chan chan struct{}),
		ended:   make(chan struct{}),
		wires:   map[*wire]struct{}{},
	}
	s.network.current.Store(newSnapshot(o.Settings))
	s.accept(ctx, listener, down)
	go s.run(ctx, listener, down)
	s.settle()
	return s, nil
}

func listen(ctx context.Context, address netip.AddrPort) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", address.String())
	if err != nil {
		return nil, fmt.Errorf("listening for SSH: %w", err)
	}
	return l, nil
}

// Address is where the server listens, or would if it could.
func (s *Server) Address() netip.AddrPort { return s.address }

// HostKey is the key shown to new connections, as "<type> <base64>".
func (s *Server) HostKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.network.settings().HostKey.PublicKey())))
}

// Settings are those of now.
func (s *Server) Settings() Settings { return s.network.settings().Settings }

// Change changes the settings. They hold when it returns, for open connections too wherever a
// setting does not say otherwise.
func (s *Server) Change(edit func(settings *Settings)) {
	s.mu.Lock()
	previous := s.network.settings()
	next := previous.Settings
	edit(&next)
	if next.HostKey == nil {
		next.HostKey = previous.HostKey
	}
	s.network.current.Store(newSnapshot(next))
	close(previous.replaced)
	s.mu.Unlock()
	s.settle()
}

// Cut resets all open connections, once.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.wires {
		w.cut()
	}
}

// Counters are what was counted so far.
func (s *Server) Counters() Counters { return s.network.counters.read() }

// ResetCounters starts counting anew.
func (s *Server) ResetCounters() { s.network.counters.reset() }

// Close cuts everything off and returns when nothing of the server runs any more. A repeated call
// does nothing.
func (s *Server) Close() {
	s.stop()
	<-s.ended
}

// settle returns when the port is open or closed as the settings and the machine's power say.
func (s *Server) settle() {
	done := make(chan struct{})
	select {
	case s.changes <- done:
	case <-s.ended:
		return
	}
	select {
	case <-done:
	case <-s.ended:
	}
}

// run owns the listener. down is nil while the machine is off.
func (s *Server) run(ctx context.Context, listener net.Listener, down <-chan struct{}) {
	defer close(s.ended)
	boots := s.watchPower(ctx, down)
	var settling chan struct{}
	for {
		open := down != nil && !s.network.settings().Faults.Closed
		listener = s.heed(ctx, listener, open, down)
		var retry <-chan time.Time
		var changes <-chan chan struct{}
		switch {
		case open && listener == nil:
			retry = time.After(relistenDelay)
		case settling != nil:
			close(settling)
			settling, changes = nil, s.changes
		default:
			changes = s.changes
		}
		select {
		case <-retry:
		case settling = <-changes:
		case down = <-boots:
		case <-down:
			down = nil
			listener = s.heed(ctx, listener, false, nil)
			s.Cut()
		case <-ctx.Done():
			s.heed(ctx, listener, false, nil)
			s.Cut()
			s.group.Wait()
			return
		}
	}
}

// watchPower tells of each boot after the present one.
func (s *Server) watchPower(ctx context.Context, down <-chan struct{}) <-chan (<-chan struct{}) {
	boots := make(chan (<-chan struct{}))
	s.group.Go(func() {
		for {
			select {
			case <-down:
			case <-ctx.Done():
				return
			}
			next, err := s.machine.WaitBoot(ctx)
			if err != nil {
				return
			}
			select {
			case boots <- next:
				down = next
			case <-ctx.Done():
				return
			}
		}
	})
	return boots
}

// heed opens or closes the port. It gives nil when the port is closed, or could not be opened.
func (s *Server) heed(ctx context.Context, listener net.Listener, open bool, down <-chan struct{}) net.Listener {
	switch {
	case open && listener == nil:
		l, err := listen(ctx, s.address)
		if err != nil {
			return nil
		}
		s.accept(ctx, l, down)
		return l
	case !open && listener != nil:
		_ = listener.Close()
		return nil
	}
	return listener
}

func (s *Server) accept(ctx context.Context, listener net.Listener, down <-chan struct{}) {
	s.group.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.admit(ctx, conn, down)
		}
	})
}

// admit begins to serve a connection, unless the machine went down meanwhile.
func (s *Server) admit(ctx context.Context, conn net.Conn, down <-chan struct{}) {
	w := newWire(newTap(conn, &s.network, &s.group))
	s.mu.Lock()
	s.wires[w] = struct{}{}
	s.mu.Unlock()
	s.group.Go(func() {
		defer func() {
			s.mu.Lock()
			delete(s.wires, w)
			s.mu.Unlock()
		}()
		select {
		case <-down:
			w.cut()
		case <-ctx.Done():
			w.cut()
		default:
			s.serve(ctx, w)
		}
	})
}
