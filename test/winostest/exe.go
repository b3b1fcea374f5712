package winostest

import (
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/test/winostest/order"
)

func exeCases() []testCase {
	return []testCase{
		{name: "the exe of a running service can not be touched", needs: []Ability{ExeInUse}, run: exeProtected},
		{name: "the exe of a running service can be moved away and replaced", run: exeMovedAway},
		{name: "stop returns when the process has ended and its exe is free", run: exeFreeAfterStop},
		{name: "a file that is no exe is a start that failed", run: exeNone},
		{name: "a process that is killed has ended, and frees its exe", run: exeKilled},
		{name: "processes are found by the place of their exe", run: exeFound},
		{name: "a lock is free again once it is given back", run: lockGivenBack},
	}
}

func exeProtected(m machine) {
	t := m.t
	config := m.service(t, "Busy", order.Orders{}, nil)
	exe, files := m.dir+`\Busy.exe`, m.Host.Files
	m.start(t, config.Name)
	_, err := files.Create(exe, winos.AccessInherit)
	isError(t, "creating", err, winos.ErrInUse)
	isError(t, "removing", files.Remove(exe), winos.ErrInUse)
	isError(t, "removing its directory", files.RemoveAll(m.dir), winos.ErrInUse)
	isError(t, "replacing", winos.WriteFile(files, exe, strings.NewReader("new"), winos.AccessInherit), winos.ErrInUse)
	if found, err := winos.Exists(files, exe+".tmp"); err != nil || found {
		t.Errorf("a temporary file was not deleted: %v %v", found, err)
	}
	if content := m.read(t, exe); !strings.HasPrefix(content, "MZ") {
		t.Error("the exe was damaged")
	}
	m.stop(t, config.Name)
	m.start(t, config.Name)
}

func exeMovedAway(m machine) {
	t := m.t
	config := m.service(t, "Moved", order.Orders{}, nil)
	exe, files := m.dir+`\Moved.exe`, m.Host.Files
	aside := winos.AsidePath(exe, 1)
	first := m.start(t, config.Name)
	noError(t, files.Rename(exe, aside))
	m.InstallService(t, exe)
	if service := m.get(t, config.Name); service.State != winos.ServiceRunning || service.PID != first.PID {
		t.Errorf("after the exe was renamed, the service is %s with process %d, want process %d", service.State,
			service.PID,
			first.PID)
	}
	if why, cannot := m.Cannot[ExeInUse]; cannot {
		t.Logf("skipped: removing a running exe: %s", why)
	} else {
		isError(t, "removing what still runs", files.Remove(aside), winos.ErrInUse)
	}
	found, err := m.Host.Programs.Processes(t.Context(), exe)
	noError(t, err)
	if len(found) != 1 || found[0].PID != first.PID || !strings.EqualFold(found[0].Exe, exe) {
		t.Errorf("the processes with the original path are %+v, want process %d", found, first.PID)
	}
	noError(t, m.Host.Programs.Kill(t.Context(), first.PID, winos.Runs(exe)))
	noError(t, files.Remove(aside)) // no process runs this exe now
	m.stop(t, config.Name)
	m.start(t, config.Name)
}

func exeFreeAfterStop(m machine) {
	t := m.t
	config := m.service(t, "Lingers", order.Orders{Linger: 700 * time.Millisecond}, nil)
	exe := m.dir + `\Lingers.exe`
	for range 2 {
		m.start(t, config.Name)
		m.stop(t, config.Name)
		noError(t, m.Host.Files.Remove(exe))
		m.InstallService(t, exe)
	}
}

func exeNone(m machine) {
	t := m.t
	config := m.service(t, "Text", order.Orders{}, nil)
	noError(t, winos.WriteFile(m.Host.Files, m.dir+`\Text.exe`, strings.NewReader("This is no program."),
		winos.AccessInherit))
	isError(t, "starting", m.Host.Services.Start(t.Context(), config.Name), winos.ErrStartFailed)
}

func exeKilled(m machine) {
	t := m.t
	config := m.service(t, "Killed", order.Orders{}, nil)
	running := m.start(t, config.Name)
	other := func(string) bool { return false }
	noError(t, m.Host.Programs.Kill(t.Context(), running.PID, other))
	state, err := m.Host.Services.Get(t.Context(), config.Name)
	noError(t, err)
	if state.PID != running.PID || state.State != winos.ServiceRunning {
		t.Errorf("a process of another program was ended: %+v", state)
	}
	for range 2 { // deleting a missing file succeeds
		noError(t, m.Host.Programs.Kill(t.Context(), running.PID, winos.Runs(m.dir+`\KILLED.exe`)))
	}
	noError(t, m.Host.Files.Remove(m.dir+`\Killed.exe`))
	m.stop(t, config.Name)
}

func exeFound(m machine) {
	t := m.t
	config := m.service(t, "Found", order.Orders{}, nil)
	running := m.start(t, config.Name)
	for _, path := range []string{m.dir, m.dir + `\FOUND.exe`} {
		found, err := m.Host.Programs.Processes(t.Context(), path)
		noError(t, err)
		if len(found) != 1 || found[0].PID != running.PID || !strings.EqualFold(found[0].Exe, m.dir+`\Found.exe`) {
			t.Errorf("the processes below %s are %+v, want process %d", path, found, running.PID)
		}
	}
	m.stop(t, config.Name)
	found, err := m.Host.Programs.Processes(t.Context(), m.dir)
	noError(t, err)
	if len(found) > 0 {
		t.Errorf("after the stop, these processes run: %+v", found)
	}
}

func lockGivenBack(m machine) {
	t := m.t
	for range 2 {
		unlock, _, err := m.Host.Programs.Lock(t.Context(), m.dir+`\lock`)
		noError(t, err)
		noError(t, unlock())
	}
	if found, err := winos.Exists(m.Host.Files, m.dir+`\lock`); err != nil || found {
		t.Errorf("the lock was not removed: %v %v", found, err)
	}
}
