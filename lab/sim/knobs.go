package sim

import (
	"net/netip"
	"sync"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// knobs contains the settings and faults that can change while the machine runs.
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
	// unkillable contains the exes whose processes can't be killed.
	unkillable map[string]bool
	// The next pendingLocks attempts to get a lock find a lock file whose deletion is pending.
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

// SetCosts changes the durations of all operations that begin after this call.
func (m *Machine) SetCosts(costs Costs) { m.knobs.setCosts(costs) }

// SetShell changes the default shell of remote commands.
func (m *Machine) SetShell(shell Shell) { m.knobs.change(func() { m.knobs.sh = shell }) }

// SetClockOffset makes the machine's clock wrong by an offset.
func (m *Machine) SetClockOffset(offset time.Duration) {
	m.knobs.change(func() { m.knobs.offset = offset })
}

// SetAdmin sets whether processes and the console have the rights of an administrator. By default they have these
// rights.
func (m *Machine) SetAdmin(admin bool) { m.knobs.change(func() { m.knobs.admin = admin }) }

// SetDiskFree sets the free space on the disk, by changing the space that other files use.
func (m *Machine) SetDiskFree(bytes int64) { m.volume.setFree(bytes) }

// SetPathFault makes every operation on exactly this path fail with err. Use winos.ErrDenied, or winos.ErrInUse to
// simulate a virus scanner. nil removes the fault.
func (m *Machine) SetPathFault(path string, err error) { m.volume.setFault(path, err) }

// SetBuild changes the version of Windows.
func (m *Machine) SetBuild(build, ubr int) { m.system.setBuild(build, ubr) }

// SetRebootSigns makes parts of Windows request a reboot: see winos.Facts.RebootSigns. replacedAtBoot lists files that
// the reboot replaces. The next reboot resets both.
func (m *Machine) SetRebootSigns(signs []string, replacedAtBoot ...string) {
	m.system.setRebootSigns(signs, replacedAtBoot)
}

// SetFeature changes the state of a feature directly, without winos. If the state is empty, this Windows no longer
// knows the feature.
func (m *Machine) SetFeature(name string, state winos.FeatureState) {
	m.system.setFeature(name, state)
}

// SetForgetful makes every boot discard a pending change of the host name, as guest customization does. Pending
// features remain pending, as with a broken component store.
func (m *Machine) SetForgetful(forgetful bool) {
	m.system.mu.Lock()
	defer m.system.mu.Unlock()
	m.system.forgetful = forgetful
}

// SetFeatureFault makes EnableFeature fail with err. nil removes the fault.
func (m *Machine) SetFeatureFault(err error) { m.system.setFeatureFault(err) }

// SetNoRoute removes the default route. Without this route, the machine has no node IP.
func (m *Machine) SetNoRoute(none bool) { m.knobs.change(func() { m.knobs.noRoute = none }) }

// SetLinkDown takes down the link of the network card. The address and the route of the card disappear.
func (m *Machine) SetLinkDown(down bool) { m.knobs.change(func() { m.knobs.linkDown = down }) }

// SetSecondCard adds a second network card with this address. The default route of the second card takes precedence
// over the route of the first card. The zero address removes the second card.
func (m *Machine) SetSecondCard(address netip.Addr) {
	m.knobs.change(func() { m.knobs.second = address })
}

// SetHNSFault makes every call to the host network service fail with err. nil removes the fault.
func (m *Machine) SetHNSFault(err error) { m.hns.setFault(err) }

// SetForeignPort makes a program that doesn't belong to the operator listen on a TCP port, even after a reboot. An
// empty program name frees the port.
func (m *Machine) SetForeignPort(port int, program string) { m.ports.setForeign(port, program) }

// HoldOff makes the machine remain off after each requested reboot until PowerOn is called, or ends this.
func (m *Machine) HoldOff(hold bool) { m.knobs.change(func() { m.knobs.off = hold }) }

// FailService makes the process of a service exit immediately after each start.
func (m *Machine) FailService(name string, fail bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.fail = fail })
}

// HangStart keeps a service in StartPending for the time Costs.ServiceStart.
func (m *Machine) HangStart(name string, hang bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.hangStart = hang })
}

// HangStop makes a service accept a stop request but never stop. It ends only if its process is killed.
func (m *Machine) HangStop(name string, hang bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.hangStop = hang })
}

// FreezeService makes the current process of a service stop answering the service manager, like a suspended process. A
// stop request fails after the time Costs.ServiceControl, and the state of the service remains Running. The program of
// the service continues to run. FreezeService returns an error if the service has no process.
func (m *Machine) FreezeService(name string) error { return m.services.freeze(name) }

// StopLinger keeps the process of a service running for the time d after the service has reported that it is stopped.
// During this time, the exe is in use.
func (m *Machine) StopLinger(name string, d time.Duration) {
	m.setServiceFault(name, func(f *serviceFaults) { f.linger = d })
}

// SetUnkillable makes it impossible to kill the processes of an exe, as if a call hung in a driver. They end when the
// machine goes down.
func (m *Machine) SetUnkillable(exe string, unkillable bool) {
	m.knobs.change(func() { m.knobs.unkillable[fold(exe)] = unkillable })
}

// CrashService kills the process of a service in the same way as Task Manager. It returns an error if the service has
// no process.
func (m *Machine) CrashService(name string) error { return m.services.crash(name) }

// DisableService prevents a service from starting until the service is configured again. An antivirus program may do
// this. If the service is running, it continues to run.
func (m *Machine) DisableService(name string) error { return m.services.disable(name) }

// HoldService opens a handle of a service, as the Services console does. If the service is deleted, it remains marked
// for deletion until release is called.
func (m *Machine) HoldService(name string) (release func(), err error) {
	return m.services.hold(name)
}

// SetPendingLocks makes the next n attempts to get a lock find an earlier lock file whose deletion is pending, because
// a virus scanner still reads it. Windows denies access to such a file.
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
