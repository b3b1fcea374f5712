package winos

import (
	"context"
	"errors"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc/mgr"
)

// process is a process to wait for. The zero value has no process, so its wait returns at once.
type process struct{ handle windows.Handle }

// serviceProcess opens the process of a service. It returns the zero process if there is no process to wait for: if the
// service shares its process with other services, if the process has ended, or if Windows protects the process.
func serviceProcess(s *mgr.Service) (process, error) {
	status, err := s.Query()
	if err != nil {
		return process{}, fail(err, "querying service %s", s.Name)
	}
	config, err := s.Config()
	if err != nil {
		return process{}, fail(err, "reading the configuration of service %s", s.Name)
	}
	if status.ProcessId == 0 || config.ServiceType&windows.SERVICE_WIN32_SHARE_PROCESS != 0 {
		return process{}, nil
	}
	opened, err := windows.OpenProcess(windows.SYNCHRONIZE, false, status.ProcessId)
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) || errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return process{}, nil
	}
	return process{handle: opened}, fail(err, "opening the process of service %s", s.Name)
}

func (p process) close() {
	if p.handle != 0 {
		_ = windows.CloseHandle(p.handle)
	}
}

func (p process) ended() bool {
	if p.handle == 0 {
		return false
	}
	event, err := windows.WaitForSingleObject(p.handle, 0)
	return err == nil && event == windows.WAIT_OBJECT_0
}

// wait returns when the process or ctx has ended. It polls, because Windows can't interrupt a wait for a handle.
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

// processNames returns the exe's name of every process, by process ID. It uses a snapshot, because a snapshot includes
// protected processes, which OpenProcess can't open.
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
