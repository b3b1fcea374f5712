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
	// unkillable are exes whose processes nobody can end.
	unkillable map[string]bool
	// pendingLocks are how many attempts at a lock still find its file about to be deleted.
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

// SetCosts changes how long things take, from the next thing on.
func (m *Machine) SetCosts(costs Costs) { m.knobs.setCosts(costs) }

// SetShell changes the default shell of remote commands.
func (m *Machine) SetShell(shell Shell) { m.knobs.change(func() { m.knobs.sh = shell }) }

// SetClockOffset makes the machine's clock wrong.
func (m *Machine) SetClockOffset(offset time.Duration) {
	m.knobs.change(func() { m.knobs.offset = offset })
}

// SetAdmin says whether processes and the console have administrators' rights; they have until told
// otherwise.
func (m *Machine) SetAdmin(admin bool) { m.knobs.change(func() { m.knobs.admin = admin }) }

// SetDiskFree makes something else take or give space, so that this many bytes are free now.
func (m *Machine) SetDiskFree(bytes int64) { m.volume.setFree(bytes) }

// SetPathFault makes everything that names exactly this path fail with err: winos.ErrDenied, or
// winos.ErrInUse as a virus scanner would. nil mends it.
func (m *Machine) SetPathFault(path string, err error) { m.volume.setFault(path, err) }

// SetBuild changes the version of Windows.
func (m *Machine) SetBuild(build, ubr int) { m.system.setBuild(build, ubr) }

// SetRebootPending makes Windows itself ask for a reboot, until the next one.
func (m *Machine) SetRebootPending(pending bool) { m.system.setRebootPending(pending) }

// SetRebootSigns makes parts of Windows ask for a reboot (see winos.Facts.RebootSigns), and files
// be put in place by it, until the next one.
func (m *Machine) SetRebootSigns(signs []string, replacedAtBoot ...string) {
	m.system.setRebootSigns(signs, replacedAtBoot)
}

// SetFeature changes a feature behind everybody's back; a state of "" makes it unknown to this
// Windows.
func (m *Machine) SetFeature(name string, state winos.FeatureState) {
	m.system.setFeature(name, state)
}

// SetForgetful has every boot bring the old host name back and leave a feature pending, as guest
// customization and a broken component store do.
func (m *Machine) SetForgetful(forgetful bool) {
	m.system.mu.Lock()
	defer m.system.mu.Unlock()
	m.system.forgetful = forgetful
}

// SetFeatureFault makes EnableFeature fail with err; nil mends it.
func (m *Machine) SetFeatureFault(err error) { m.system.setFeatureFault(err) }

// SetNoRoute takes the default route away, and with it the node's IP.
func (m *Machine) SetNoRoute(none bool) { m.knobs.change(func() { m.knobs.noRoute = none }) }

// SetLinkDown takes the link of the network card away, and with it address and route.
func (m *Machine) SetLinkDown(down bool) { m.knobs.change(func() { m.knobs.linkDown = down }) }

// SetSecondCard gives the machine a second network card with this address, whose default route wins over that of the
// first. The zero address takes it away.
func (m *Machine) SetSecondCard(address netip.Addr) {
	m.knobs.change(func() { m.knobs.second = address })
}

// SetHNSFault makes every call to the host network service fail with err; nil mends it.
func (m *Machine) SetHNSFault(err error) { m.hns.setFault(err) }

// SetForeignPort makes some other program listen on a TCP port; an empty program frees it. A reboot
// keeps it.
func (m *Machine) SetForeignPort(port int, program string) { m.ports.setForeign(port, program) }

// HoldOff makes the next reboot end in a machine that stays off, until PowerOn.
func (m *Machine) HoldOff(hold bool) { m.knobs.change(func() { m.knobs.off = hold }) }

// FailService makes the process of a service end at once whenever it starts.
func (m *Machine) FailService(name string, fail bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.fail = fail })
}

// HangStart makes a service stay in StartPending until Costs.ServiceStart is over.
func (m *Machine) HangStart(name string, hang bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.hangStart = hang })
}

// HangStop makes a service take a stop request and never stop. It still dies when its process is
// killed.
func (m *Machine) HangStop(name string, hang bool) {
	m.setServiceFault(name, func(f *serviceFaults) { f.hangStop = hang })
}

// FreezeService keeps the present process of a service from answering the service manager, as a suspended
// one does: a request to stop fails after Costs.ServiceControl, and the service goes on as Running. Its
// program is not held up. It is an error if there is no process.
func (m *Machine) FreezeService(name string) error { return m.services.freeze(name) }

// StopLinger makes the process of a service stay for d after the service has reported that it is
// stopped, with its exe in use.
func (m *Machine) StopLinger(name string, d time.Duration) {
	m.setServiceFault(name, func(f *serviceFaults) { f.linger = d })
}

// SetUnkillable keeps the processes of an exe from being ended by others, as a call that hangs in a
// driver does. They end when the machine goes down.
func (m *Machine) SetUnkillable(exe string, unkillable bool) {
	m.knobs.change(func() { m.knobs.unkillable[fold(exe)] = unkillable })
}

// CrashService kills the process of a service, as Task Manager does. It is an error if it has none.
func (m *Machine) CrashService(name string) error { return m.services.crash(name) }

// DisableService keeps a service from being started, as an antivirus might, until it is configured
// again. One that runs goes on.
func (m *Machine) DisableService(name string) error { return m.services.disable(name) }

// HoldService opens a service as the Services console does: deleted, it stays marked for deletion
// until release.
func (m *Machine) HoldService(name string) (release func(), err error) {
	return m.services.hold(name)
}

// SetPendingLocks has the next n attempts at a lock find the file of the one before about to be
// deleted, because a virus scanner still reads it: Windows then denies access.
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
