package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync"
)

// processTable holds the running processes.
type processTable struct {
	mu sync.Mutex
	// accepting is false while the machine is off.
	accepting bool
	next      uint32
	running   map[uint32]*process
	// started counts all starts of processes since the machine was created. shells counts the starts of PowerShell.
	// seen contains the command lines that have appeared, without duplicates.
	started, shells int
	seen            map[string]struct{}
	// locks maps the folded path of each lock file to the process that has the lock.
	locks map[string]*process
	// remotes contains the first process of each remote command.
	remotes map[*process]struct{}
}

// seenLimit is the maximum number of command lines in seen.
const seenLimit = 4096

// enter adds a process to the table. It returns false if the machine is off.
func (m *Machine) enter(p *process) bool {
	t := &m.processes
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.accepting {
		return false
	}
	t.next += 4
	p.pid = t.next
	t.running[p.pid] = p
	t.started++
	if len(t.seen) < seenLimit {
		t.seen[p.commandLine] = struct{}{}
	}
	return true
}

func (m *Machine) leave(p *process) {
	t := &m.processes
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.running, p.pid)
	maps.DeleteFunc(t.locks, func(_ string, holder *process) bool { return holder == p })
}

// The method remote adds or removes the first process of a remote command.
func (t *processTable) remote(p *process, on bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !on {
		delete(t.remotes, p)
		return
	}
	t.remotes[p] = struct{}{}
}

func (t *processTable) sessions() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Keys(t.remotes))
}

func (t *processTable) find(pid uint32) (*process, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, ok := t.running[pid]
	return p, ok
}

func (t *processTable) accept(accept bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.accepting = accept
	if accept {
		t.next = 0
	}
}

func (t *processTable) all() []*process {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.running), func(a, b *process) int { return cmp.Compare(a.pid, b.pid) })
}

// ProcessInfo is one entry of the machine's process list.
type ProcessInfo struct {
	PID, Parent      uint32
	Exe, CommandLine string
	// Environment is the environment when the process started. Windows shows it only to administrators.
	Environment map[string]string
}

// Processes lists the running processes, sorted by process ID.
func (m *Machine) Processes() []ProcessInfo {
	var infos []ProcessInfo
	for _, p := range m.processes.all() {
		infos = append(infos, ProcessInfo{PID: p.pid, Parent: p.parent, Exe: p.exe, CommandLine: p.commandLine,
			Environment: maps.Clone(p.environment)})
	}
	return infos
}

// CommandLines returns the command lines of all processes that have ever run, sorted and without duplicates. On
// Windows, any user who watches the list of processes can read them.
func (m *Machine) CommandLines() []string {
	m.processes.mu.Lock()
	defer m.processes.mu.Unlock()
	return slices.Sorted(maps.Keys(m.processes.seen))
}

// Starts contains the numbers of processes that a machine has started.
type Starts struct {
	Processes int `json:"processes"`
	// PowerShell is the number of starts of PowerShell.
	PowerShell int `json:"powershell"`
}

// Starts returns how many processes the machine has started. Reboots don't reset the numbers.
func (m *Machine) Starts() Starts {
	m.processes.mu.Lock()
	defer m.processes.mu.Unlock()
	return Starts{Processes: m.processes.started, PowerShell: m.processes.shells}
}

// Kill kills a process in the same way as Task Manager. It returns an error if no process has this ID.
func (m *Machine) Kill(pid uint32) error {
	p, ok := m.processes.find(pid)
	if !ok {
		return fmt.Errorf("no process has the id %d", pid)
	}
	m.kill(p)
	return nil
}
