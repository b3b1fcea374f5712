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

// Options configure a server.
type Options struct {
	// Machine is the machine behind the server. Required.
	Machine Machine
	// Listen is the address and port, usually in 127.0.0.0/8. Port 0 selects a free port, which the server then keeps
	// permanently. Required.
	Listen netip.AddrPort
	// Settings are the initial settings. If HostKey is nil, the server creates an Ed25519 key. If FurtherHostKeys is
	// nil, it creates an ECDSA key.
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

// relistenDelay is the delay before the next attempt to listen on the server's port. Another program can temporarily
// use the port as the local end of a connection.
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

// Address is the address of the server, even while it isn't listening.
func (s *Server) Address() netip.AddrPort { return s.address }

// HostKey returns the key that new connections get, as "<type> <base64>".
func (s *Server) HostKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.network.settings().HostKey.PublicKey())))
}

// Settings returns the current settings.
func (s *Server) Settings() Settings { return s.network.settings().Settings }

// Change changes the settings. They are in effect when it returns, also for open connections unless a setting documents
// otherwise.
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

// Cut resets all open connections once.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.wires {
		w.cut()
	}
}

// Counters returns the current counts.
func (s *Server) Counters() Counters { return s.network.counters.read() }

// ResetCounters resets the counts.
func (s *Server) ResetCounters() { s.network.counters.reset() }

// Close resets all connections and returns when the server has stopped completely. It is idempotent.
func (s *Server) Close() {
	s.stop()
	<-s.ended
}

// settle returns when the state of the port matches the settings and the power state of the machine.
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

// watchPower reports each boot after the current one.
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

// heed opens or closes the port. If the port is closed or can't be opened, it returns nil.
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

// admit starts to serve a connection, unless the machine went down in between.
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
