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
	// Machine is the server's machine. It is required.
	Machine Machine
	// Listen is the address and the port of the server, usually in 127.0.0.0/8. If the port is 0, the server chooses a
	// free port and keeps it. Listen is required.
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

// relistenDelay is the pause before the server tries again to listen on its port. A different program may be using the
// port for an outgoing connection at the moment.
const relistenDelay = 20 * time.Millisecond

// Start waits until the machine is up and starts a server. The server runs until ctx is cancelled or Close is called.
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

// Address returns the address of the server, even if the server isn't listening.
func (s *Server) Address() netip.AddrPort { return s.address }

// HostKey returns the host key for new connections, as "<type> <base64>".
func (s *Server) HostKey() string {
	return strings.TrimSpace(string(ssh.MarshalAuthorizedKey(s.network.settings().HostKey.PublicKey())))
}

// Settings returns the current settings.
func (s *Server) Settings() Settings { return s.network.settings().Settings }

// Change changes the settings. When it returns, the settings are in effect. They also apply to open connections, unless
// the comment of a setting says something else.
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

// Cut resets all connections that are open now.
func (s *Server) Cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w := range s.wires {
		w.cut()
	}
}

// Counters returns the current counters.
func (s *Server) Counters() Counters { return s.network.counters.read() }

// ResetCounters resets the counters.
func (s *Server) ResetCounters() { s.network.counters.reset() }

// Close resets all connections and waits until the server has stopped completely. It may be called more than once.
func (s *Server) Close() {
	s.stop()
	<-s.ended
}

// settle waits until the port is open or closed according to the settings and to the power of the machine.
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

// run opens and closes the listener, and accepts connections. down is nil while the machine is off.
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

// watchPower returns a channel that reports each boot after the current boot.
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

// heed opens or closes the port. It returns the listener, or nil if the port is closed or couldn't be opened.
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

// admit starts to serve a connection. If the machine has just gone down, it closes the connection.
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
