package winos

import "golang.org/x/sys/windows"

// logs are files that programs hold open.
type logs struct{}

var _ Logs = logs{}

// Empty works because Go programs, which all of ours are, let others write along; they don't let
// anybody rename or delete.
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
