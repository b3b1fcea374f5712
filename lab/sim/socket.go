package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// metadataAddress is the address of the metadata service of clouds.
func metadataAddress() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{169, 254, 169, 254}), 80)
}

// Listen opens a socket for one port of the machine. It uses the address of the machine, because many machines in this
// process may use the same port. If this address is 127.0.0.1 or not a loopback address, the socket gets a free port of
// 127.0.0.1 instead. On the same machine, Dial finds the socket at 127.0.0.1 and the requested port.
func (f networkFace) Listen(ctx context.Context, port int) (net.Listener, error) {
	address := f.m.address
	if !address.IsLoopback() {
		address = loopback()
	}
	return f.listen(ctx, address, port)
}

func (f networkFace) listen(ctx context.Context, address netip.Addr, port int) (net.Listener, error) {
	if err := f.change(ctx); err != nil {
		return nil, err
	}
	if !f.m.power.isOn() {
		return nil, ErrOff
	}
	if program, taken := f.m.ports.all()[port]; taken && port != 0 {
		return nil, fmt.Errorf("listening on port %d: %s listens there: %w", port, program, winos.ErrInUse)
	}
	real := port
	if address == loopback() {
		real = 0
	}
	socket, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", net.JoinHostPort(address.String(), strconv.Itoa(real)))
	if err != nil {
		return nil, fmt.Errorf("listening on port %d: %w: %w", port, winos.ErrInUse, err)
	}
	if port == 0 {
		if address, ok := socket.Addr().(*net.TCPAddr); ok {
			port = address.Port
		}
	}
	l := &listening{Listener: socket, once: sync.OnceValue(socket.Close)}
	program := "console"
	if f.p != nil {
		program = baseName(f.p.exe)
	}
	l.release, err = f.m.ports.enter(port, listener{program: program, process: f.p, socket: l})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", winos.ErrInUse, err), l.once())
	}
	if err = f.p.alive(); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func loopback() netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 0, 1}) }

// listening is an open socket. It is in the machine's table of listeners until it is closed.
type listening struct {
	net.Listener
	once    func() error
	release func()
}

// Close implements net.Listener.
func (l *listening) Close() error {
	l.release()
	return l.once()
}

// Dial connects to an address. At 127.0.0.1, it connects to listeners of the machine. At the address of the metadata
// service, it connects to the cloud. At all other addresses, it connects in the same way as this process.
func (f networkFace) Dial(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	if !f.m.power.isOn() {
		return nil, ErrOff
	}
	network, address := "tcp", to.String()
	switch {
	case to == metadataAddress():
		return f.m.metadata.dial(ctx, f.m)
	case to.Addr() == loopback():
		socket := f.m.ports.socket(int(to.Port()))
		if socket == nil {
			return nil, fmt.Errorf("connecting to %s: no program listens there", to)
		}
		address = socket.Addr().String()
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", to, err)
	}
	return conn, nil
}

// metadata is the metadata service of the machine's cloud.
type metadata struct {
	mu      sync.Mutex
	handler http.Handler
	// routed means that the machine reaches the service only if it has a route to the address of the service.
	routed bool
}

// SetMetadata sets the handler for 169.254.169.254. nil removes it. If routed is true, the machine needs a separate
// route to that address, as on AWS.
func (m *Machine) SetMetadata(handler http.Handler, routed bool) {
	m.metadata.mu.Lock()
	defer m.metadata.mu.Unlock()
	m.metadata.handler, m.metadata.routed = handler, routed
}

// dial connects to the service in memory, so that tests with a fake clock can use it.
func (s *metadata) dial(ctx context.Context, m *Machine) (net.Conn, error) {
	s.mu.Lock()
	handler, routed := s.handler, s.routed
	s.mu.Unlock()
	if handler == nil || routed && !m.routes.has(metadataAddress().Addr()) {
		return nil, fmt.Errorf("connecting to %s: the network is unreachable", metadataAddress())
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	here, there := net.Pipe()
	server := &http.Server{Handler: handler} //nolint:gosec // it ends with its only connection, which is in memory
	if !m.spawn(func() { _ = server.Serve(&single{conn: there, done: make(chan struct{})}) }) {
		return nil, ErrClosed
	}
	return here, nil
}

// single is a listener that accepts one connection. When the connection is closed, the listener is closed as well.
type single struct {
	conn net.Conn
	done chan struct{}
	once sync.Once
	used bool
}

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	if s.used {
		<-s.done
		return nil, net.ErrClosed
	}
	s.used = true
	return &last{Conn: s.conn, listener: s}, nil
}

// Close implements net.Listener.
func (s *single) Close() error {
	s.once.Do(func() { close(s.done) })
	return nil
}

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return s.conn.LocalAddr() }

// last is the only connection that a listener of type single accepts.
type last struct {
	net.Conn
	listener *single
}

// Close closes the connection and its listener.
func (c *last) Close() error { return errors.Join(c.Conn.Close(), c.listener.Close()) }
