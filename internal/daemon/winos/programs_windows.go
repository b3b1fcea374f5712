package winos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

type launcher struct{}

var _ Programs = launcher{}

// killedCode is the exit code of a process that we end.
const killedCode = 1

// Run names the exe apart from the command line, so that Windows looks for no other.
func (launcher) Run(ctx context.Context, exe string, args ...string) (int, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	name, err := windows.UTF16PtrFromString(exe)
	if err != nil {
		return 0, fmt.Errorf("starting %q: %w", exe, ErrInvalidName)
	}
	line, err := windows.UTF16PtrFromString(windows.EscapeArg(exe) + " " + strings.Join(args, " "))
	if err != nil {
		return 0, fmt.Errorf("starting %q: %w", exe, ErrInvalidName)
	}
	startup := windows.StartupInfo{Flags: windows.STARTF_USESHOWWINDOW, ShowWindow: windows.SW_HIDE}
	startup.Cb = uint32(unsafe.Sizeof(startup))
	var info windows.ProcessInformation
	const inheritHandles = false
	err = windows.CreateProcess(name, line, nil, nil, inheritHandles, windows.CREATE_NO_WINDOW, nil, nil, &startup,
		&info)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrStartFailed, fail(err, "starting %s", exe))
	}
	_ = windows.CloseHandle(info.Thread)
	p := process{handle: info.Process}
	defer p.close()
	if err = p.wait(ctx); err != nil {
		// Its exe can be removed only when it has ended.
		if killed := windows.TerminateProcess(p.handle, killedCode); killed == nil {
			killed = p.wait(context.WithoutCancel(ctx))
			err = errors.Join(err, killed)
		}
		return 0, fail(err, "waiting for %s", exe)
	}
	var code uint32
	if err = windows.GetExitCodeProcess(p.handle, &code); err != nil {
		return 0, fail(err, "reading the exit code of %s", exe)
	}
	return int(int32(code)), nil
}

// Kill is Programs. A process that ends by itself at that moment can't be terminated any more,
// which is no error.
func (launcher) Kill(ctx context.Context, pid uint32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	opened, err := windows.OpenProcess(windows.PROCESS_TERMINATE|windows.SYNCHRONIZE, false, pid)
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return nil // there is none
	}
	if err != nil {
		return fail(err, "opening process %d", pid)
	}
	p := process{handle: opened}
	defer p.close()
	if err = windows.TerminateProcess(p.handle, killedCode); err != nil && !p.ended() {
		return fail(err, "ending process %d", pid)
	}
	return fail(p.wait(ctx), "waiting for the end of process %d", pid)
}
