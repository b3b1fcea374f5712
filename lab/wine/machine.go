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

// User is the administrator of a host, and Home is the home directory of this user.
const (
	User = "Administrator"
	Home = `C:\users\` + User
)

// addressBits is the prefix length of the network of a host. Its gateway doesn't exist. The gateway has the last but
// one address, which no host has.
const addressBits = 16

func gatewayOf(network netip.Prefix) netip.Addr {
	b := network.Masked().Addr().As4()
	b[2], b[3] = 255, 254
	return netip.AddrFrom4(b)
}

// HostOptions configure a new host.
type HostOptions struct {
	// Hostname is the name of the computer. Without namespaces, the host has the name of this machine.
	Hostname string
	// Address is the IPv4 address of the host, which is the only member of its network. Without namespaces, the host
	// has the addresses of this machine.
	Address netip.Addr
	// Reach lists addresses of servers on the loopback network of this machine. Programs on the host can connect to the
	// servers at these addresses.
	Reach []netip.AddrPort
}

// Machine is one host. It is on until PowerOff or Close.
type Machine struct {
	template *Template
	options  HostOptions
	prefix   string
	release  func() error
	// boots counts the attempted boots. failed counts the boots that failed and were repeated.
	boots, failed atomic.Int32

	// turning is held while the host is being turned on or off.
	turning sync.Mutex

	mu      sync.Mutex
	current *session
	closed  bool
	// changed is closed and replaced when the host is turned on or closed.
	changed chan struct{}
}

// ErrOff is returned while the host is off.
var ErrOff = errors.New("the host is off")

// ErrClosed is returned after the host was closed.
var ErrClosed = errors.New("the host is closed")

// Start creates a host and turns it on.
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

// StartAt creates a host for an SSH server at an address in 127.0.0.0/8, and derives the address of the host from it.
func (t *Template) StartAt(ctx context.Context, hostname string, server netip.Addr, reach []netip.AddrPort) (*Machine,
	error) {
	b := server.As4()
	return t.Start(ctx, HostOptions{Hostname: hostname, Address: netip.AddrFrom4([4]byte{10, 33, b[2], b[3]}),
		Reach: reach})
}

// install creates the system files.
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

// PowerOn turns the host on and returns when it is up. If it is on, nothing happens. A failed boot is repeated once and
// counted: for an unknown reason, Wine's first process ended immediately in 1 boot of about 270.
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

// clear ends the remaining processes of a session if Wine ended by itself.
func (m *Machine) clear() {
	m.mu.Lock()
	dead := m.current
	m.current = nil
	m.mu.Unlock()
	if dead != nil {
		dead.end(false)
	}
}

// PowerOff turns the host off. Programs get no notice, but the disk, including the registry, is preserved. If the host
// is off, nothing happens.
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

// Close turns the host off permanently and removes it. It returns an error if the host wrote to shared files. It is
// idempotent.
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

// set changes the state and wakes all waiting goroutines.
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

// session returns the current session, or nil while the host is off.
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

// Boots returns how often the host was booted, and how many of these boots failed and were repeated.
func (m *Machine) Boots() (tried, failed int) { return int(m.boots.Load()), int(m.failed.Load()) }

// User returns the name of the host's administrator.
func (m *Machine) User() string { return User }

// Windows returns the OS interface of the running host. It is valid until the host goes down.
func (m *Machine) Windows() (*remote.Host, error) {
	s := m.session()
	if s == nil {
		return nil, ErrOff
	}
	return s.host, nil
}

// Reach lets programs on the host connect to one more server of this machine from now on.
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

// Dial connects to a server on the host, at an address of the host.
func (m *Machine) Dial(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
	s := m.session()
	if s == nil {
		return nil, ErrOff
	}
	return s.cell.dial(ctx, address)
}

// Processes lists the command lines of all processes of the host, including Wine's processes.
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
