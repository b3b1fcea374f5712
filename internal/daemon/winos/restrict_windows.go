package winos

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/Microsoft/go-winio"
	"golang.org/x/sys/windows"
)

// Restrict implements Files. It replaces the owner and the access list of a file or directory. If other files inherit
// rights from a directory, Windows also applies the directory's new list to them. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/aclapi/nf-aclapi-setnamedsecurityinfow.
func (files) Restrict(path string) error {
	doing := "restricting " + path
	info, err := files{}.Stat(path)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if info.Access == AccessAdministrators {
		return nil
	}
	sddl := administratorsFile
	if info.Dir {
		sddl = administratorsDirectory
	}
	descriptor, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		return fail(err, "%s", doing)
	}
	owner, _, err := descriptor.Owner()
	if err != nil {
		return fail(err, "%s", doing)
	}
	list, _, err := descriptor.DACL()
	if err != nil {
		return fail(err, "%s", doing)
	}
	set := func() error {
		return windows.SetNamedSecurityInfo(verbatim(strings.TrimSuffix(path, `\`)), windows.SE_FILE_OBJECT,
			windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION|
				windows.PROTECTED_DACL_SECURITY_INFORMATION, owner, nil, list, nil)
	}
	err = set()
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_INVALID_OWNER) {
		// The access list excludes even the daemon. Administrators have the privileges to take ownership of any file
		// and to restore it, but these privileges are off by default.
		if asOwner := winio.RunWithPrivileges([]string{"SeTakeOwnershipPrivilege", winio.SeRestorePrivilege},
			set); asOwner != nil {
			err = errors.Join(err, asOwner)
		} else {
			err = nil
		}
	}
	runtime.KeepAlive(descriptor)
	return fail(err, "%s", doing)
}
