package winos

import "golang.org/x/sys/windows"

type logs struct{}

var _ Logs = logs{}

// Empty implements Logs. It works because our programs are Go programs: Go opens a log file so that other programs may
// write to the file, but not rename or delete it.
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
