package sim

import (
	"net/netip"
	"sync"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// knobs are settings and faults that can change while the machine runs.
type knobs struct {
	mu       sync.Mutex
	cost     Costs
	sh       Shell
	offset   time.Duration
	admin    bool
	off      bool
	noRoute  bool
	linkDown bool
	second   netip.Addr
	services map[string]serviceFaults
	// unkillable holds the exes whose processes can't be killed.
	unkillable map[string]bool
	// pendingLocks is the number of further attempts at a lock that find a lock file with a pending deletion.
	pendingLocks int
}

type serviceFaults struct {
	fail, hangStart, hangStop bool
	linger                    time.Duration
}

func newKnobs(options Options) *knobs {
	k := &knobs{sh: options.Shell, admin: true, services: map[string]serviceFaults{},
		unkillable: map[string]bool{}}
	k.setCosts(options.Costs)
	return k
}

func (k *knobs) setCosts(c Costs) {
	setDefault(&c.ShutdownDelay, time.Second)
	setDefault(&c.ServiceStart, 30*time.Second)
	setDefault(&c.ServiceKill, 5*time.Second)
	setDefault(&c.ServiceControl, 30*time.Second)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cost = c
}

func (k *knobs) change(what func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	what()
}

func read[T any](k *knobs, what *T) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return *what
}

func (k *knobs) costs() Costs               { return read(k, &k.cost) }
func (k *knobs) shell() Shell               { return read(k, &k.sh) }
func (k *knobs) clockOffset() time.Duration { return read(k, &k.offset) }
func (k *knobs) isAdmin() bool              { return read(k, &k.admin) }
func (k *knobs) heldOff() bool              { return read(k, &k.off) }
func (k *knobs) isLinkDown() bool           { return read(k, &k.linkDown) }
func (k *knobs) secondCard() netip.Addr     { return read(k, &k.second) }

func (k *knobs) hasNoRoute() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.second.IsValid() && (k.noRoute || k.linkDown)
}

func (k *knobs) isUnkillable(exe string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.unkillable[fold(exe)]
}

func (k *knobs) service(name string) serviceFaults {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.services[fold(name)]
}

func (m *Machine) setServiceFault(name string, set func(*serviceFaults)) {
	m.knobs.change(func() {
		faults := m.knobs.services[fold(name)]
		set(&faults)
		m.knobs.services[fold(name)] = faults
	})
}

// SetCosts changes the durations of all following operations.
func (m *Machine) SetCosts(costs Costs) { m.knobs.setCosts(costs) }

// SetShell changes the default shell of remote commands.
func (m *Machine) SetShell(shell Shell) { m.knobs.change(func() { m.knobs.sh = shell }) }

// SetClockOffset makes the machine's clock wrong.
func (m *Machine) SetClockOffset(offset time.Duration) {
	m.knobs.change(func() { m.knobs.offset = offset })
}

// SetAdmin sets whether processes and the console have administrator rights. By default, they have.
func (m *Machine) SetAdmin(admin bool) { m.knobs.change(func() { m.knobs.admin = admin }) }

// SetDiskFree changes the space used by other files so that the given number of bytes is free now.
func (m *Machine) SetDiskFree(bytes int64) { m.volume.setFree(bytes) }

// SetPathFault makes every operation on exactly this path fail with err: winos.ErrDenied, or winos.ErrInUse to imitate
// a virus scanner. nil removes the fault.
func (m *Machine) SetPathFault(path string, err error) { m.volume.setFault(path, err) }

// SetBuild changes the version of Windows.
func (m *Machine) SetBuild(build, ubr int) { m.system.setBuild(build, ubr) }

// SetRebootSigns makes parts of Windows request a reboot (see winos.Facts.RebootSigns), and lists files that the reboot
// replaces. The next reboot resets both.
func (m *Machine) SetRebootSigns(signs []string, replacedAtBoot ...string) {
	m.system.setRebootSigns(signs, replacedAtBoot)
}

// SetFeature changes a feature without going through winos. An empty state makes the feature unknown to this Windows.
func (m *Machine) SetFeature(name string, state winos.FeatureState) {
	m.system.setFeature(name, state)
}

// SetForgetful makes every boot restore the old host name and leave a feature pending, like guest customization and a
// broken component store.
func (m *Machine) SetForgetful(forgetful bool) {
	m.system.mu.Lock()
	defer m.system.mu.Unlock()
	m.system.forgetful = forgetful
}

// SetFeatureFault makes EnableFeature fail with err. nil removes the fault.
func (m *Machine) SetFeatureFault(err error) { m.system.setFeatureFault(err) }

// SetNoRoute removes the default route, and therefore the node IP.
func (m *Machine) SetNoRoute(none bool) { m.knobs.change(func() { m.knobs.noRoute = none }) }

// SetLinkDown takes the link of the network card down, and therefore removes its address and route.
func (m *Machine) SetLinkDown(down bool) { m.knobs.change(func() { m.knobs.linkDown = down }) }

// SetSecondCard adds a second network card with this address. Its default route takes precedence over the route of the
// first card. The zero address removes the card.
func (m *Machine) SetSecondCard(address netip.Addr) {
	m.knobs.change(func() { m.knobs.second = address })
}

// SetHNSFault makes every call to the host network service fail with err. nil removes the fault.
func (m *Machine) SetHNSFault(err error) { m.hns.setFault(err) }

// SetForeignPort makes another program listen on a TCP port. An empty program name frees the port. The listener
// survives a reboot.
func (m *Machine) SetForeignPort(port int, program string) { m.ports.setForeign(port, program) }

// HoldOff makes the machine stay off after the next reboot request, until PowerOn.
func (m *Machine) HoldOff(hold bool) { m.knobs.change(func() { m.knobs.off = hold }) }

// FailService makes the process of a service exit immediately after each start.
func (m *Machine) FailService(name string, fail bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.fail = fail })
}

// HangStart keeps a service in StartPending until Costs.ServiceStart has elapsed.
func (m *Machine) HangStart(name string, hang bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.hangStart = hang })
}

// HangStop makes a service accept a stop request and never stop. Killing its process still ends it.
func (m *Machine) HangStop(name string, hang bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.hangStop = hang })
}

// FreezeService makes the current process of a service unresponsive to the service manager, like a suspended process: a
// stop request fails after Costs.ServiceControl, and the service stays Running. Its program continues to run. It
// returns an error if there is no process.
func (m *Machine) FreezeService(name string) error { return m.services.freeze(name) }

// StopLinger keeps the process of a service alive for d after the service has reported its stop. The exe stays in use
// until then.
func (m *Machine) StopLinger(name string, d time.Duration) {
	m.setServiceFault(name, func(f *serviceFaults) { f.linger = d })
}

// SetUnkillable protects the processes of an exe from being killed, like a call that hangs in a driver. They end when
// the machine goes down.
func (m *Machine) SetUnkillable(exe string, unkillable bool) {
	m.knobs.change(func() { m.knobs.unkillable[fold(exe)] = unkillable })
}

// CrashService kills the process of a service, like Task Manager. It returns an error if the service has no process.
func (m *Machine) CrashService(name string) error { return m.services.crash(name) }

// DisableService prevents the start of a service until it is configured again, like an antivirus program. If the
// service is running, it continues to run.
func (m *Machine) DisableService(name string) error { return m.services.disable(name) }

// HoldService opens a service like the Services console. If the service is deleted, it stays marked for deletion until
// release is called.
func (m *Machine) HoldService(name string) (release func(), err error) {
	return m.services.hold(name)
}

// SetPendingLocks makes the next n attempts at a lock find a previous lock file with a pending deletion, because a
// virus scanner still reads it. Windows then denies access.
func (m *Machine) SetPendingLocks(n int) { m.knobs.change(func() { m.knobs.pendingLocks = n }) }

func (k *knobs) takePendingLock() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.pendingLocks == 0 {
		return false
	}
	k.pendingLocks--
	return true
}
