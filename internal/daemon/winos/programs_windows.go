package winos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"github.com/Microsoft/hcsshim"
	"golang.org/x/sys/windows"
)

type launcher struct{}

var _ Programs = launcher{}

const killedCode = 1

// Run passes the exe separately from the command line, so that Windows doesn't search for the exe in other directories.
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
		// Wait until the killed process has ended, because its exe can't be deleted earlier.
		if killed := windows.TerminateProcess(p.handle, killedCode); killed == nil {
			limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), killLimit)
			defer cancel()
			err = errors.Join(err, p.wait(limited))
		}
		return 0, fail(err, "waiting for %s", exe)
	}
	var code uint32
	if err = windows.GetExitCodeProcess(p.handle, &code); err != nil {
		return 0, fail(err, "reading the exit code of %s", exe)
	}
	return int(int32(code)), nil
}

// Kill implements Programs. It uses the same handle to read the exe's path and to kill the process, because Windows
// reuses process IDs. If the process can't be terminated because it has just ended by itself, Kill returns no error.
func (launcher) Kill(ctx context.Context, pid uint32, runs func(exe string) bool) error {
	if err := ctx.Err(); err != nil || pid == windows.GetCurrentProcessId() {
		return err
	}
	opened, err := windows.OpenProcess(windows.PROCESS_TERMINATE|windows.SYNCHRONIZE|
		windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if errors.Is(err, windows.ERROR_INVALID_PARAMETER) {
		return nil // no such process
	}
	if err != nil {
		return fail(err, "opening process %d", pid)
	}
	p := process{handle: opened}
	defer p.close()
	exe, err := imageOf(opened)
	switch {
	case err != nil && p.ended():
		return nil
	case err != nil:
		return fail(err, "reading what process %d runs", pid)
	case !runs(exe):
		return nil
	}
	if err = windows.TerminateProcess(p.handle, killedCode); err != nil && !p.ended() {
		return fail(err, "ending process %d", pid)
	}
	return fail(p.wait(ctx), "waiting for the end of process %d", pid)
}

// Processes implements Programs. It skips processes that can't be opened: Windows protects them, so they aren't ours.
func (launcher) Processes(ctx context.Context, path string) ([]Process, error) {
	if err := errors.Join(ctx.Err(), CheckPath(path)); err != nil {
		return nil, err
	}
	var found []Process
	own := windows.GetCurrentProcessId()
	err := eachProcess(func(entry windows.ProcessEntry32) {
		if entry.ProcessID == own {
			return
		}
		if exe := imagePath(entry.ProcessID); atOrBelow(path, exe) {
			found = append(found, Process{PID: entry.ProcessID, Exe: exe})
		}
	})
	return found, err
}

// imagePath returns the path that a process's exe had when the process started, or "" if the process can't be opened.
func imagePath(pid uint32) string {
	h, err := windows.OpenProcess(windows.PROCESS_QUERY_LIMITED_INFORMATION, false, pid)
	if err != nil {
		return ""
	}
	defer func() { _ = windows.CloseHandle(h) }()
	path, err := imageOf(h)
	if err != nil {
		return ""
	}
	return path
}

// imageOf returns the path that the exe of an opened process had when the process started. Windows itself reports the
// exe's current path.
func imageOf(h windows.Handle) (string, error) {
	var name [windows.MAX_LONG_PATH]uint16
	size := uint32(len(name))
	if err := windows.QueryFullProcessImageName(h, 0, &name[0], &size); err != nil {
		return "", err
	}
	return StartedPath(windows.UTF16ToString(name[:size])), nil
}

// Lock implements Programs. The lock is a file with the process ID of its holder. While the holder has the file open,
// no other process can open it for writing. When the holder closes the file or ends, Windows deletes the file.
func (launcher) Lock(ctx context.Context, path string) (func() error, uint32, error) {
	name, err := systemPath(path)
	if err = errors.Join(ctx.Err(), err); err != nil {
		return nil, 0, err
	}
	security, err := securityOf(administratorsFile)
	if err != nil {
		return nil, 0, fail(err, "locking %s", path)
	}
	const deletion = 0x10000 // DELETE, a standard right
	h, err := windows.CreateFile(name, windows.GENERIC_WRITE|deletion, windows.FILE_SHARE_READ, security,
		windows.CREATE_ALWAYS, windows.FILE_ATTRIBUTE_NORMAL|windows.FILE_FLAG_DELETE_ON_CLOSE, 0)
	if err != nil {
		err = fail(err, "locking %s", path)
		if errors.Is(err, ErrInUse) {
			return nil, lockHolder(name), err
		}
		return nil, 0, err
	}
	unlock := func() error { return fail(windows.CloseHandle(h), "unlocking %s", path) }
	var written uint32
	text := strconv.FormatUint(uint64(windows.GetCurrentProcessId()), 10)
	if err = windows.WriteFile(h, []byte(text), &written, nil); err != nil {
		return nil, 0, errors.Join(fail(err, "locking %s", path), unlock())
	}
	return unlock, 0, nil
}

// lockHolder returns the process ID of a lock's holder, or 0 if the ID is unknown.
func lockHolder(name *uint16) uint32 {
	h, err := windows.CreateFile(name, windows.GENERIC_READ, shareAll, nil, windows.OPEN_EXISTING, 0, 0)
	if err != nil {
		return 0
	}
	defer func() { _ = windows.CloseHandle(h) }()
	var text [16]byte
	var size uint32
	if err = windows.ReadFile(h, text[:], &size, nil); err != nil {
		return 0
	}
	pid, err := strconv.ParseUint(string(text[:size]), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(pid)
}

func (launcher) RemoveAtBoot(path string) error {
	name, err := systemPath(path)
	if err != nil {
		return err
	}
	return fail(windows.MoveFileEx(name, nil, windows.MOVEFILE_DELAY_UNTIL_REBOOT), "having the next boot delete %s",
		path)
}

// RemoveLayer implements Programs. It first unmounts the layer, because a killed container may have left it mounted. If
// the layer isn't mounted or belongs to an image, the unmount fails, and RemoveLayer ignores this error.
func (launcher) RemoveLayer(ctx context.Context, path string) error {
	if _, err := function("vmcompute.dll", "DestroyLayer"); err != nil {
		return err
	}
	info, id := hcsshim.DriverInfo{HomeDir: filepath.Dir(path)}, filepath.Base(path)
	_, err := interruptible(ctx, func() (struct{}, error) {
		_ = hcsshim.UnprepareLayer(info, id)
		_ = hcsshim.DeactivateLayer(info, id)
		return struct{}{}, hcsshim.DestroyLayer(info, id)
	})
	return fail(err, "removing the layer %s", path)
}

func atOrBelow(dir, path string) bool {
	return strings.EqualFold(dir, path) ||
		strings.HasPrefix(strings.ToLower(path), strings.ToLower(strings.TrimSuffix(dir, `\`)+`\`))
}
