package winos

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// process is one process that can be waited for. Its zero value stands for one that has ended.
type process struct{ handle windows.Handle }

// process opens the process of a service, if it has one of its own. One that can't be opened
// because it is gone, or because Windows protects it, counts as ended: there is no way to wait for
// it.
func (h serviceHandle) process(status serviceStatus) (process, error) {
	if status.ProcessId == 0 || status.shared {
		return process{}, nil
	}
	opened, err := windows.OpenProcess(windows.SYNCHRONIZE, false, status.ProcessId)
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) || errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return process{}, nil
	}
	return process{handle: opened}, fail(err, "opening the process of service %s", h.name)
}

// processGone says whether there surely is no such process (any more). 0 is no process, and not
// gone either.
func processGone(pid uint32) bool {
	if pid == 0 {
		return false
	}
	h, err := windows.OpenProcess(windows.SYNCHRONIZE, false, pid)
	if err != nil {
		return errors.Is(err, windows.ERROR_INVALID_PARAMETER)
	}
	p := process{handle: h}
	defer p.close()
	return p.ended()
}

func (p process) close() {
	if p.handle != 0 {
		_ = windows.CloseHandle(p.handle)
	}
}

// ended says whether a process that could be opened has ended.
func (p process) ended() bool {
	if p.handle == 0 {
		return false
	}
	event, err := windows.WaitForSingleObject(p.handle, 0)
	return err == nil && event == windows.WAIT_OBJECT_0
}

// wait returns when the process has ended. A wait for a handle can't be interrupted, so it is cut
// into slices.
func (p process) wait(ctx context.Context) error {
	const slice = 50 * time.Millisecond
	for p.handle != 0 {
		event, err := windows.WaitForSingleObject(p.handle, uint32(slice.Milliseconds()))
		if err != nil || event == windows.WAIT_OBJECT_0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// processNames names the exe of every process that runs. A snapshot has the names of protected
// processes too, which can't be opened.
func processNames() (map[uint32]string, error) {
	names := map[uint32]string{}
	err := eachProcess(func(entry windows.ProcessEntry32) {
		names[entry.ProcessID] = windows.UTF16ToString(entry.ExeFile[:])
	})
	if err != nil {
		return nil, err
	}
	return names, nil
}

// eachProcess visits every process that runs.
func eachProcess(visit func(entry windows.ProcessEntry32)) error {
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPPROCESS, 0)
	if err != nil {
		return fail(err, "listing processes")
	}
	defer func() { _ = windows.CloseHandle(snapshot) }()
	entry := windows.ProcessEntry32{Size: uint32(unsafe.Sizeof(windows.ProcessEntry32{}))}
	for err = windows.Process32First(snapshot, &entry); err == nil; err = windows.Process32Next(snapshot, &entry) {
		visit(entry)
	}
	if !errors.Is(err, windows.ERROR_NO_MORE_FILES) {
		return fail(err, "listing processes")
	}
	return nil
}
