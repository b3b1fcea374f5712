package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// Boot is the period from when the machine is turned on until it is turned off.
type Boot struct {
	// ID is different for every boot.
	ID string
	// Down is closed when the machine goes down. An SSH server then closes its listener and its connections.
	Down <-chan struct{}
}

// power contains the state of the machine's power. It also counts the goroutines that belong to the machine.
//
//	on ──PowerCut / end of shutdown──▶ off ──after Costs.Off──▶ on
//	 │                                  ▲ └─ PowerCut, or HoldOff: stays off until PowerOn
//	 └── Reboot: after ShutdownDelay ───┘
type power struct {
	// turning is locked while the machine is being turned on or off.
	turning sync.Mutex

	mu      sync.Mutex
	current Boot
	down    chan struct{}
	on      bool
	// up means that the machine is on and can start processes and services.
	up     bool
	closed bool
	// rebooting is true from the request for a reboot until the machine is off.
	rebooting bool
	// changed is closed and replaced when a field above changes.
	changed chan struct{}
	// work counts the goroutines that Close waits for.
	work sync.WaitGroup
}

func newPower() *power {
	down := make(chan struct{})
	close(down)
	return &power{down: down, current: Boot{Down: down}, changed: make(chan struct{})}
}

func (p *power) boot() Boot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.current
}

func (p *power) isOn() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.on
}

// set changes the state and wakes all goroutines that wait for a change. If the machine was closed, set changes nothing
// and returns false.
func (p *power) set(change func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	change()
	close(p.changed)
	p.changed = make(chan struct{})
	return true
}

// spawn runs `work` in a goroutine. Close waits for this goroutine. If the machine was closed, spawn returns false.
func (m *Machine) spawn(work func()) bool {
	m.power.mu.Lock()
	defer m.power.mu.Unlock()
	if m.power.closed {
		return false
	}
	m.power.work.Go(work)
	return true
}

// WaitBoot waits until the machine is up and returns the current boot. If ctx ends, WaitBoot returns the error of ctx.
// If the machine was closed, it returns ErrClosed.
func (m *Machine) WaitBoot(ctx context.Context) (Boot, error) {
	for {
		m.power.mu.Lock()
		boot, up, closed, changed := m.power.current, m.power.up, m.power.closed, m.power.changed
		m.power.mu.Unlock()
		switch {
		case closed:
			return Boot{}, ErrClosed
		case up:
			return boot, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return Boot{}, context.Cause(ctx)
		}
	}
}

// requestReboot starts a reboot. If a reboot is in progress, it does nothing.
func (m *Machine) requestReboot() error {
	p := m.power
	p.mu.Lock()
	on, already := p.on, p.rebooting
	p.rebooting = on
	p.mu.Unlock()
	if !on {
		return ErrOff
	}
	if already {
		return nil
	}
	if !m.spawn(m.reboot) {
		return ErrClosed
	}
	return nil
}

func (m *Machine) reboot() {
	if !m.pause(m.knobs.costs().ShutdownDelay) {
		return
	}
	m.turnOff(true)
	if m.pause(m.knobs.costs().Off) && !m.knobs.heldOff() {
		m.turnOn()
	}
}

// pause waits for the time d. It returns false if the machine is closed earlier.
func (m *Machine) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-m.closing:
		return false
	}
}

// PowerCut cuts the power. All processes end immediately and can't clean up. The machine remains off until PowerOn is
// called.
func (m *Machine) PowerCut() { m.turnOff(false) }

// PowerOn turns the machine on. If the machine is on, PowerOn does nothing.
func (m *Machine) PowerOn() { m.turnOn() }

// turnOff ends all processes and turns the machine off. If grace is true, it first asks the processes to end, and waits
// for the time Costs.ServiceKill.
func (m *Machine) turnOff(grace bool) {
	p := m.power
	p.turning.Lock()
	defer p.turning.Unlock()
	if !p.isOn() {
		return
	}
	p.mu.Lock()
	p.on, p.up, p.rebooting = false, false, false
	close(p.down)
	p.mu.Unlock()
	m.processes.accept(false)
	m.services.powerOff()
	if grace {
		m.endProcesses(errAsked)
		m.awaitProcesses(m.knobs.costs().ServiceKill)
	}
	m.killProcesses()
	m.awaitProcesses(0)
	m.services.settled()
	m.log.V(1).Info("machine is off")
}

func (m *Machine) turnOn() {
	p := m.power
	p.turning.Lock()
	defer p.turning.Unlock()
	if p.isOn() {
		return
	}
	m.system.boot()
	m.volume.boot()
	m.hns.boot()
	if m.power.boot().ID != "" {
		m.routes.lose()
	}
	down := make(chan struct{})
	var id string
	if !p.set(func() {
		id = fmt.Sprintf("boot-%x", rand.Uint64())
		p.on, p.down = true, down
		p.current = Boot{ID: id, Down: down}
	}) {
		return
	}
	m.processes.accept(true)
	m.services.powerOn()
	p.set(func() { p.up = true })
	m.log.V(1).Info("machine is on", "boot", id)
}

// endProcesses asks all processes to end.
func (m *Machine) endProcesses(why error) {
	for _, p := range m.processes.all() {
		p.stop(why)
	}
}

func (m *Machine) killProcesses() {
	for _, p := range m.processes.all() {
		m.kill(p)
	}
}

// awaitProcesses waits until all processes have ended, or until the time d is over. If d is 0, there is no time limit.
func (m *Machine) awaitProcesses(d time.Duration) {
	var over <-chan time.Time
	var closing <-chan struct{}
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		over, closing = timer.C, m.closing
	}
	for _, p := range m.processes.all() {
		select {
		case <-p.gone:
		case <-over:
			return
		case <-closing:
			return
		}
	}
}
