package winos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

// secrets keeps what others must not read, by the data protection API and by file rights.
type secrets struct{}

var _ Secrets = secrets{}

// Seal uses the machine's own key: a service and an administrator over SSH have to read what the
// other sealed. Anybody on the machine could have it unsealed, were there not the file rights
// around it. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/dpapi/nf-dpapi-cryptprotectdata.
func (secrets) Seal(ctx context.Context, plain []byte, purpose string) ([]byte, error) {
	const flags = windows.CRYPTPROTECT_LOCAL_MACHINE | windows.CRYPTPROTECT_UI_FORBIDDEN
	// What is empty is sealed as well, and Windows refuses to: hence the byte in front.
	sealed, err := protect(ctx, append([]byte{1}, plain...), purpose, func(in, entropy, out *windows.DataBlob) error {
		return windows.CryptProtectData(in, nil, entropy, 0, nil, flags, out)
	})
	return sealed, fail(err, "sealing")
}

func (secrets) Unseal(ctx context.Context, sealed []byte, purpose string) ([]byte, error) {
	if len(sealed) == 0 {
		return nil, fmt.Errorf("unsealing: it is empty: %w", ErrNotSealedHere)
	}
	plain, err := protect(ctx, sealed, purpose, func(in, entropy, out *windows.DataBlob) error {
		return windows.CryptUnprotectData(in, nil, entropy, 0, nil, windows.CRYPTPROTECT_UI_FORBIDDEN, out)
	})
	switch {
	case ctx.Err() != nil || errors.Is(err, windows.ERROR_NOT_ENOUGH_MEMORY):
		return nil, fail(err, "unsealing")
	case err != nil:
		return nil, fmt.Errorf("unsealing: %w: %w", ErrNotSealedHere, err)
	case len(plain) == 0:
		return nil, fmt.Errorf("unsealing: %w", ErrNotSealedHere)
	}
	return plain[1:], nil
}

// protect runs one of the two calls, whose result is in memory of Windows.
func protect(ctx context.Context, input []byte, purpose string,
	call func(in, entropy, out *windows.DataBlob) error) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// The purpose goes in as entropy, so that what was sealed for another is refused.
	word := []byte("wmco:" + purpose)
	in, entropy := blobOf(input), blobOf(word)
	var out windows.DataBlob
	err := call(&in, &entropy, &out)
	runtime.KeepAlive(input)
	runtime.KeepAlive(word)
	if err != nil {
		return nil, err
	}
	if out.Data == nil {
		return nil, nil
	}
	result := bytes.Clone(unsafe.Slice(out.Data, out.Size))
	clear(unsafe.Slice(out.Data, out.Size))
	_, err = windows.LocalFree(windows.Handle(unsafe.Pointer(out.Data)))
	return result, err
}

func blobOf(b []byte) windows.DataBlob {
	return windows.DataBlob{Size: uint32(len(b)), Data: unsafe.SliceData(b)}
}

// Restrict replaces owner and list of a file or directory. Windows passes the new list of a
// directory on to what has its rights from there. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/aclapi/nf-aclapi-setnamedsecurityinfow.
func (secrets) Restrict(path string) error {
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
		// Somebody locked us out, too: administrators may take what is theirs.
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

// kept looks whether the new rights hold. Wine takes the change and forgets it; it heeds one that
// is made through a handle.
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

// asOwner runs work with the privileges that let administrators take over and restore what belongs
// to others. They are ours anyway, but off by default; only this thread has them on.
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
