package winos

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/windows"
)

// Restrict replaces the owner and the access list of a file or directory. Windows passes the new list of a directory on
// to everything that inherits its rights from there. Source:
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
	const parts = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION |
		windows.PROTECTED_DACL_SECURITY_INFORMATION
	err = windows.SetNamedSecurityInfo(verbatim(strings.TrimSuffix(path, `\`)), windows.SE_FILE_OBJECT, parts, owner,
		nil, list, nil)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) || errors.Is(err, windows.ERROR_INVALID_OWNER) {
		// The daemon is locked out as well. Administrators may take the ownership.
		err = asOwner(func() error {
			return windows.SetNamedSecurityInfo(verbatim(path), windows.SE_FILE_OBJECT, parts, owner, nil, list, nil)
		})
	}
	if err == nil {
		err = kept(path, descriptor)
	}
	runtime.KeepAlive(descriptor)
	return fail(err, "%s", doing)
}

// kept checks whether the new rights hold. Wine accepts the change and forgets it, but keeps a change through a
// handle.
func kept(path string, descriptor *windows.SECURITY_DESCRIPTOR) error {
	info, err := files{}.Stat(path)
	if err != nil || info.Access == AccessAdministrators {
		return err
	}
	name, err := systemPath(path)
	if err != nil {
		return err
	}
	h, err := windows.CreateFile(name, windows.WRITE_DAC|windows.WRITE_OWNER, shareAll, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_BACKUP_SEMANTICS, 0)
	if err != nil {
		return err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	if err = windows.SetKernelObjectSecurity(h, windows.OWNER_SECURITY_INFORMATION|windows.DACL_SECURITY_INFORMATION,
		descriptor); err != nil {
		return err
	}
	if info, err = (files{}).Stat(path); err == nil && info.Access != AccessAdministrators {
		err = fmt.Errorf("the change was not kept: %w", ErrDenied)
	}
	return err
}

// asOwner runs work with the privileges to take and restore files of others. Administrators have these privileges, but
// they are off by default. asOwner switches them on for this thread only.
func asOwner(work func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := windows.ImpersonateSelf(windows.SecurityImpersonation); err != nil {
		return err
	}
	defer func() { _ = windows.RevertToSelf() }()
	var token windows.Token
	if err := windows.OpenThreadToken(windows.CurrentThread(), windows.TOKEN_ADJUST_PRIVILEGES|windows.TOKEN_QUERY,
		true, &token); err != nil {
		return err
	}
	defer func() { _ = token.Close() }()
	for _, name := range []string{"SeTakeOwnershipPrivilege", "SeRestorePrivilege"} {
		text, err := windows.UTF16PtrFromString(name)
		if err != nil {
			return err
		}
		privileges := windows.Tokenprivileges{PrivilegeCount: 1}
		privileges.Privileges[0].Attributes = windows.SE_PRIVILEGE_ENABLED
		if err := windows.LookupPrivilegeValue(nil, text, &privileges.Privileges[0].Luid); err != nil {
			return err
		}
		if err := windows.AdjustTokenPrivileges(token, false, &privileges, 0, nil, nil); err != nil {
			return err
		}
	}
	return work()
}
