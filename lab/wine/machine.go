//go:build linux

package wine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/windows-nodes/wmco/lab/wine/remote"
)

// User is the administrator of a host, and Home what is theirs.
const (
	User = "Administrator"
	Home = `C:\users\` + User
)

// addressBits is the size of a host's network. Its gateway, which does not exist, has the last
// address but one, which no host has.
const addressBits = 16

func gatewayOf(network netip.Prefix) netip.Addr {
	b := network.Masked().Addr().As4()
	b[2], b[3] = 255, 254
	return netip.AddrFrom4(b)
}

// HostOptions say what host to make.
type HostOptions struct {
	// Hostname is the computer's name. Without namespaces the host has this machine's.
	Hostname string
	// Address is the host's own IPv4 address, in a network of which it is the only member. Without
	// namespaces the host has this machine's.
	Address netip.Addr
	// Reach are servers on this machine's loopback network that programs on the host reach under
	// the same address.
	Reach []netip.AddrPort
}

// Machine is one host. It is on from the start, and until PowerOff or Close.
type Machine struct {
	template *Template
	options  HostOptions
	prefix   string
	release  func() error
	// boots counts those that were tried, failed those that failed and were tried again.
	boots, failed atomic.Int32

	// turning is held by whoever turns the host on or off.
	turning sync.Mutex

	mu      sync.Mutex
	current *session
	closed  bool
	// changed is closed and replaced when the host is turned on or closed.
	changed chan struct{}
}

// ErrOff says that the host is not on.
var ErrOff = errors.New("the host is off")

// ErrClosed says that the host is closed.
var ErrClosed = errors.New("the host is closed")

// Start makes a host and turns it on.
func (t *Template) Start(ctx context.Context, options HostOptions) (*Machine, error) {
	dir, release, err := claim(t.hosts)
	if err != nil {
		return nil, err
	}
	m := &Machine{template: t, options: options, prefix: filepath.Join(dir, "prefix"), release: release,
		changed: make(chan struct{})}
	if err = m.install(); err == nil {
		err = m.PowerOn(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// StartAt makes a host for an SSH server at an address of 127.0.0.0/8, from which the host's own
// address is made.
func (t *Template) StartAt(ctx context.Context, hostname string, server netip.Addr, reach []netip.AddrPort) (*Machine,
	error) {
	b := server.As4()
	return t.Start(ctx, HostOptions{Hostname: hostname, Address: netip.AddrFrom4([4]byte{10, 33, b[2], b[3]}),
		Reach: reach})
}

// install puts the system's files in place.
func (m *Machine) install() error {
	if err := m.template.clone(m.prefix); err != nil {
		return err
	}
	if err := copyFile(m.template.keeper, m.Path(keeperPath), 0o700); err != nil {
		return fmt.Errorf("installing the keeper: %w", err)
	}
	if err := os.Mkdir(m.Path(Home), 0o700); err != nil {
		return fmt.Errorf("making the user's home: %w", err)
	}
	return nil
}

// PowerOn turns the host on, and returns when it is up. One that is on is left alone. A boot that
// fails is tried once more, and counted: Wine's first process ended at once, unexplained, in one
// boot of some 270.
func (m *Machine) PowerOn(ctx context.Context) error {
	m.turning.Lock()
	defer m.turning.Unlock()
	return m.turnOn(ctx)
}

func (m *Machine) turnOn(ctx context.Context) error {
	if m.isClosed() {
		return ErrClosed
	}
	if s := m.session(); s != nil {
		return nil
	}
	m.clear()
	m.boots.Add(1)
	s, err := m.begin(ctx)
	if err != nil && ctx.Err() == nil {
		first := err
		m.boots.Add(1)
		m.failed.Add(1)
		if s, err = m.begin(ctx); err != nil {
			err = errors.Join(first, err)
		}
	}
	if err != nil {
		return fmt.Errorf("booting: %w", err)
	}
	m.set(func() { m.current = s })
	return nil
}

// clear ends what is left of a session in which Wine ended by itself.
func (m *Machine) clear() {
	m.mu.Lock()
	dead := m.current
	m.current = nil
	m.mu.Unlock()
	if dead != nil {
		dead.end(false)
	}
}

// PowerOff turns the host off: nothing gets notice, but what is on its disk stays, the registry
// among it. One that is off is left alone.
func (m *Machine) PowerOff() {
	m.turning.Lock()
	defer m.turning.Unlock()
	m.turnOff(true)
}

func (m *Machine) turnOff(save bool) {
	m.mu.Lock()
	s := m.current
	m.current = nil
	m.mu.Unlock()
	if s != nil {
		s.end(save)
	}
}

// Reboot turns the host off and on again.
func (m *Machine) Reboot(ctx context.Context) error {
	m.turning.Lock()
	defer m.turning.Unlock()
	m.turnOff(true)
	return m.turnOn(ctx)
}

// Close turns the host off for good and removes it. The error also says whether it wrote to files
// that hosts share. A repeated call does nothing.
func (m *Machine) Close() error {
	m.turning.Lock()
	defer m.turning.Unlock()
	if m.isClosed() {
		return nil
	}
	m.set(func() { m.closed = true })
	m.turnOff(false)
	removeSocket(m.prefix)
	return errors.Join(m.template.check(), m.release())
}

// set changes the state and wakes who waits for that.
func (m *Machine) set(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
	close(m.changed)
	m.changed = make(chan struct{})
}

func (m *Machine) isClosed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}

// session is the present one, or nil when the host is off.
func (m *Machine) session() *session {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return nil
	}
	select {
	case <-m.current.down:
		return nil
	default:
		return m.current
	}
}

// Boots counts how often the host was booted, and how many of these boots failed and were tried
// again.
func (m *Machine) Boots() (tried, failed int) { return int(m.boots.Load()), int(m.failed.Load()) }

// User is the host's administrator.
func (m *Machine) User() string { return User }

// Windows is the OS interface of the host that is on. It is good until the host goes down.
func (m *Machine) Windows() (*remote.Host, error) {
	s := m.session()
	if s == nil {
		return nil, ErrOff
	}
	return s.host, nil
}

// Reach lets programs on the host reach one more server of this machine, from now on.
func (m *Machine) Reach(target netip.AddrPort) error {
	m.turning.Lock()
	defer m.turning.Unlock()
	if slices.Contains(m.options.Reach, target) {
		return nil
	}
	m.options.Reach = append(slices.Clip(m.options.Reach), target)
	if s := m.session(); s != nil && m.template.isolated {
		return s.forward(target)
	}
	return nil
}

// Dial connects to a server on the host, at an address of its own.
func (m *Machine) Dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	s := m.session()
	if s == nil {
		return nil, ErrOff
	}
	return s.cell.dial(ctx, address)
}

// Processes lists the command lines of all processes of the host, Wine's own among them.
func (m *Machine) Processes() []string {
	var lines []string
	for _, pid := range processes(m.prefix) {
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && len(line) > 0 {
			lines = append(lines, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")))
		}
	}
	return lines
}

// WaitBoot returns when the host is up, with a channel that is closed when it goes down.
func (m *Machine) WaitBoot(ctx context.Context) (down <-chan struct{}, err error) {
	for {
		m.mu.Lock()
		changed, closed := m.changed, m.closed
		m.mu.Unlock()
		if closed {
			return nil, ErrClosed
		}
		if s := m.session(); s != nil {
			return s.down, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
