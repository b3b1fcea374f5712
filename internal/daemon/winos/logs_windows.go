package winos

import "golang.org/x/sys/windows"

// logs are files that programs hold open.
type logs struct{}

var _ Logs = logs{}

// Empty works because all our programs are Go programs, which share their log files for writing, but not for
// renaming or deleting.
func (logs) Empty(path string) error {
	name, err := systemPath(path)
	if err != nil {
		return err
	}
	h, err := windows.CreateFile(name, windows.GENERIC_WRITE, shareAll, nil, windows.TRUNCATE_EXISTING,
		windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return fail(reason(name, err), "emptying %s", path)
	}
	return fail(windows.CloseHandle(h), "emptying %s", path)
}
