package sim

import (
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// ErrClosed is the error of calls after the machine was closed.
var ErrClosed = errors.New("the machine was closed")

// Machine is one simulated Windows Server. Its methods may be called concurrently.
type Machine struct {
	log      logr.Logger
	address  netip.Addr
	user     string
	programs map[string]Program
	standard Program

	knobs       *knobs
	volume      *volume
	services    *manager
	environment *environment
	trust       *trust
	system      *system
	ports       *ports
	routes      *routes
	metadata    metadata
	hns         *hns
	power       *power
	containers  containers
	processes   processTable
	closing     chan struct{}
}

// New creates a machine and boots it. The caller must call Close.
func New(options Options) (*Machine, error) {
	options = withDefaults(options)
	if !options.Address.Is4() {
		return nil, fmt.Errorf("making a machine: %s is no IPv4 address", options.Address)
	}
	if err := winos.CheckPath(`C:\Users\` + options.User); err != nil || strings.Contains(options.User, `\`) {
		return nil, fmt.Errorf("making a machine: user name %q: %w", options.User, winos.ErrInvalidName)
	}
	// Allow underscores: current Windows refuses them in names, but machines that were set up long ago may have them.
	if err := checkHostname(strings.ReplaceAll(options.Hostname, "_", "-")); err != nil {
		return nil, fmt.Errorf("making a machine: %w", err)
	}
	m := &Machine{
		log: options.Log, address: options.Address, user: options.User, programs: maps.Clone(options.Programs),
		standard: options.Default,
		knobs:    newKnobs(options), environment: newEnvironment(), trust: newTrust(options.Roots),
		system: newSystem(options),
		ports:  newPorts(), routes: newRoutes(), hns: newHNS(), power: newPower(),
		closing: make(chan struct{}),
		processes: processTable{running: map[uint32]*process{}, seen: map[string]struct{}{},
			locks: map[string]*process{}, remotes: map[*process]struct{}{}},
	}
	m.volume = newVolume(options.Disk, windowsSize, m.now, m.knobs.isAdmin)
	m.services = newManager(m)
	if err := m.populate(options.AuthorizedKeys); err != nil {
		return nil, fmt.Errorf("making a machine: %w", err)
	}
	m.SetMetadata(options.Metadata, options.MetadataRouted)
	if options.MetadataRouted {
		m.routes.ensure(metadataAddress().Addr())
	}
	m.turnOn()
	return m, nil
}

// windowsSize is how many bytes Windows Server uses on the disk.
const windowsSize = 14 << 30

const systemDir = `C:\Windows\System32`

func withDefaults(o Options) Options {
	setDefault(&o.Address, netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	setDefault(&o.Hostname, "WIN-"+rand.Text()[:11])
	setDefault(&o.MachineID, newGUID())
	setDefault(&o.User, "Administrator")
	setDefault(&o.Shell, ShellCmd)
	setDefault(&o.Build, 20348)
	setDefault(&o.UBR, 2700)
	setDefault(&o.Memory, 16<<30)
	setDefault(&o.Disk, 128<<30)
	if o.Features == nil {
		o.Features = map[string]winos.FeatureState{featureContainers: winos.FeatureEnabled}
	}
	if o.Log.GetSink() == nil {
		o.Log = logr.Discard()
	}
	return o
}

func setDefault[T comparable](value *T, otherwise T) {
	var zero T
	if *value == zero {
		*value = otherwise
	}
}

// populate creates the files of Windows Server and of its SSH server that the tests and the lab need.
func (m *Machine) populate(authorizedKeys []byte) error {
	files := m.Host().Files
	for _, dir := range []string{systemDir, `C:\Windows\Temp`, `C:\Program Files`, `C:\ProgramData`,
		`C:\Users\Public`} {
		if err := files.MkdirAll(dir, winos.AccessInherit); err != nil {
			return err
		}
	}
	for _, dir := range []string{m.Home(), `C:\ProgramData\ssh`} {
		if err := files.MkdirAll(dir, winos.AccessAdministrators); err != nil {
			return err
		}
	}
	for _, exe := range []string{"cmd.exe", `WindowsPowerShell\v1.0\powershell.exe`} {
		path := systemDir + `\` + exe
		if err := files.MkdirAll(dirName(path), winos.AccessInherit); err != nil {
			return err
		}
		if err := winos.WriteFile(files, path, strings.NewReader("MZ"), winos.AccessInherit); err != nil {
			return err
		}
	}
	if len(authorizedKeys) == 0 {
		return nil
	}
	return winos.WriteFile(files, AuthorizedKeysPath, strings.NewReader(string(authorizedKeys)),
		winos.AccessAdministrators)
}

// AuthorizedKeysPath is the path of the file where OpenSSH for Windows reads the keys of administrators.
const AuthorizedKeysPath = `C:\ProgramData\ssh\administrators_authorized_keys`

// Close ends all processes immediately and waits until they have ended. It may be called more than once.
func (m *Machine) Close() error {
	m.power.mu.Lock()
	closed := m.power.closed
	if !closed {
		close(m.closing)
		m.power.closed = true
		close(m.power.changed)
		m.power.changed = make(chan struct{})
	}
	m.power.mu.Unlock()
	m.turnOff(false)
	m.power.work.Wait()
	return nil
}

// Address returns the machine's IPv4 address.
func (m *Machine) Address() netip.Addr { return m.address }

// User returns the name of the administrator who logs in over SSH.
func (m *Machine) User() string { return m.user }

// Home returns the user's home directory, C:\Users\<user>.
func (m *Machine) Home() string { return `C:\Users\` + m.user }

// Shell returns the default shell of remote commands.
func (m *Machine) Shell() Shell { return m.knobs.shell() }

func (m *Machine) now() time.Time { return time.Now().Round(0).Add(m.knobs.clockOffset()) }

// newGUID returns a random identifier in the format of the registry.
func newGUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
