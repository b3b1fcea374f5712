package winos

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/windows"
)

type files struct{}

var _ Files = files{}

// shareAll lets other programs read, write, rename and delete a file while this process has the file open.
const shareAll = windows.FILE_SHARE_READ | windows.FILE_SHARE_WRITE | windows.FILE_SHARE_DELETE

func (files) Open(path string) (io.ReadCloser, error) {
	doing := "opening " + path
	name, err := systemPath(path)
	if err != nil {
		return nil, err
	}
	h, err := windows.CreateFile(name, windows.GENERIC_READ, shareAll, nil, windows.OPEN_EXISTING,
		windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, fail(err, "%s", doing)
	}
	return &openFile{file: os.NewFile(uintptr(h), path), path: path}, nil
}

// Create creates a file with its final security descriptor.
func (f files) Create(path string, access Access) (io.WriteCloser, error) {
	doing := "creating " + path
	name, err := systemPath(path)
	if err != nil {
		return nil, err
	}
	disposition := uint32(windows.CREATE_ALWAYS)
	if MakesNew(path, access) {
		if err := f.removeFile(path); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
		disposition = windows.CREATE_NEW
	}
	sddl := ""
	if access == AccessAdministrators {
		sddl = administratorsFile
	}
	security, err := securityOf(sddl)
	if err != nil {
		return nil, fail(err, "%s", doing)
	}
	// Other programs may read the file, but not write or delete it.
	h, err := windows.CreateFile(name, windows.GENERIC_WRITE, windows.FILE_SHARE_READ, security, disposition,
		windows.FILE_ATTRIBUTE_NORMAL, 0)
	if err != nil {
		return nil, fail(reason(name, err), "%s", doing)
	}
	return &openFile{file: os.NewFile(uintptr(h), path), path: path, written: true}, nil
}

// removeFile deletes the file at path to make room for a new file. If path is a directory, it returns ErrDenied.
func (f files) removeFile(path string) error {
	info, err := f.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Dir {
		return fmt.Errorf("%s is a directory: %w", path, ErrDenied)
	}
	return f.Remove(path)
}

func (files) Rename(from, to string) error {
	doing := fmt.Sprintf("renaming %s to %s", from, to)
	source, err := systemPath(from)
	if err != nil {
		return err
	}
	target, err := systemPath(to)
	if err != nil {
		return err
	}
	err = windows.MoveFileEx(source, target, windows.MOVEFILE_REPLACE_EXISTING|windows.MOVEFILE_WRITE_THROUGH)
	return fail(reason(target, err), "%s", doing)
}

// Remove also deletes read-only files. It deletes a link or junction itself, not its target.
func (files) Remove(path string) error {
	doing := "removing " + path
	name, err := systemPath(path)
	if err != nil {
		return err
	}
	attributes, err := windows.GetFileAttributes(name)
	if err == nil && attributes&windows.FILE_ATTRIBUTE_READONLY != 0 {
		err = windows.SetFileAttributes(name, attributes&^windows.FILE_ATTRIBUTE_READONLY)
	}
	if err == nil {
		if attributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0 {
			err = windows.RemoveDirectory(name)
		} else {
			err = reason(name, windows.DeleteFile(name))
		}
	}
	if err = fail(err, "%s", doing); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func (files) Stat(path string) (FileInfo, error) {
	doing := "looking at " + path
	name, err := systemPath(path)
	if err != nil {
		return FileInfo{}, err
	}
	info, err := os.Lstat(verbatim(path))
	if err != nil {
		return FileInfo{}, fail(err, "%s", doing)
	}
	sddl, err := securityOn(path)
	if err != nil {
		return FileInfo{}, fail(err, "%s", doing)
	}
	described := describe(info, accessOf(sddl))
	described.Name = path[strings.LastIndex(path, `\`)+1:]
	described.Foreign = foreign(sddl)
	// If path is a link, sddl describes its target. The link's owner can change the target, so check the link as well.
	if !info.IsDir() && !info.Mode().IsRegular() {
		own, err := linkSecurity(name)
		described.Foreign = described.Foreign || err != nil || foreign(own)
	}
	return described, nil
}

// describe converts info. A link or junction to a directory doesn't count as a directory.
func describe(info fs.FileInfo, access Access) FileInfo {
	return FileInfo{Name: info.Name(), Size: info.Size(), Dir: info.IsDir(), ModTime: info.ModTime(), Access: access}
}

func (files) List(dir string) ([]FileInfo, error) {
	doing := "listing " + dir
	if err := CheckPath(dir); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(verbatim(dir))
	if err != nil {
		return nil, fail(err, "%s", doing)
	}
	var all []FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return nil, fail(err, "%s", doing)
		}
		sddl, err := securityOn(strings.TrimSuffix(dir, `\`) + `\` + entry.Name())
		if meaning(code(err)) == fs.ErrNotExist { //nolint:errorlint // `meaning` never wraps an error
			continue // the file was just deleted
		}
		access := accessOf(sddl) // after an error, sddl is "": Windows hides the rights of some system files
		all = append(all, describe(info, access))
	}
	return all, nil
}

func (f files) MkdirAll(path string, access Access) error {
	doing := "making directory " + path
	name, err := systemPath(path)
	if err != nil {
		return err
	}
	// Here, a link or junction to a directory counts as a directory.
	attributes, err := windows.GetFileAttributes(name)
	cut := strings.LastIndexByte(path, '\\')
	switch {
	case err == nil && attributes&windows.FILE_ATTRIBUTE_DIRECTORY != 0:
		return nil
	case err == nil:
		return fmt.Errorf("%s: it is a file: %w", doing, fs.ErrExist)
	case cut+1 == len(path):
		return fail(err, "%s", doing) // there is no such drive
	}
	if err = f.MkdirAll(path[:max(cut, len(`C:\`))], access); err != nil {
		return err
	}
	security, err := securityOf(access.descriptor())
	if err != nil {
		return fail(err, "%s", doing)
	}
	err = windows.CreateDirectory(name, security)
	if errors.Is(err, windows.ERROR_ALREADY_EXISTS) { // another program has just created it
		return nil
	}
	return fail(err, "%s", doing)
}

// openFile is an open file. Its errors wrap the errors of this package. After writing, Close flushes the file to disk.
type openFile struct {
	file    *os.File
	path    string
	written bool
}

func (f *openFile) Read(p []byte) (int, error) {
	n, err := f.file.Read(p)
	if errors.Is(err, io.EOF) {
		return n, io.EOF
	}
	return n, fail(err, "reading %s", f.path)
}

func (f *openFile) Write(p []byte) (int, error) {
	n, err := f.file.Write(p)
	return n, fail(err, "writing %s", f.path)
}

func (f *openFile) Close() error {
	var err error
	if f.written {
		err = fail(f.file.Sync(), "flushing %s", f.path)
	}
	return errors.Join(err, fail(f.file.Close(), "closing %s", f.path))
}

func systemPath(path string) (*uint16, error) {
	if err := CheckPath(path); err != nil {
		return nil, err
	}
	name, err := windows.UTF16PtrFromString(verbatim(path))
	return name, fail(err, "path %s", path)
}

// `verbatim` returns the verbatim form of a path that CheckPath has accepted. In this form, Windows neither limits the
// length to 260 nor normalises the path.
func verbatim(path string) string { return `\\?\` + path }

// securityOf returns the security attributes for a new file or directory. If sddl is empty, it returns nil, and the
// rights are inherited.
func securityOf(sddl string) (*windows.SecurityAttributes, error) {
	if sddl == "" {
		return nil, nil
	}
	descriptor, err := windows.SecurityDescriptorFromString(sddl)
	if err != nil {
		return nil, err
	}
	security := &windows.SecurityAttributes{SecurityDescriptor: descriptor}
	security.Length = uint32(unsafe.Sizeof(*security))
	return security, nil
}

// descriptor returns the security descriptor of a new directory, or "" if the directory inherits its rights.
func (a Access) descriptor() string {
	switch a {
	case AccessAdministrators:
		return administratorsDirectory
	case AccessUsers:
		return usersDirectory
	}
	return ""
}

const securityParts = windows.OWNER_SECURITY_INFORMATION | windows.DACL_SECURITY_INFORMATION

// securityOn reads the security descriptor of path. On a file system without access rights, such as FAT, sddl is empty.
func securityOn(path string) (sddl string, err error) {
	descriptor, err := windows.GetNamedSecurityInfo(verbatim(path), windows.SE_FILE_OBJECT, securityParts)
	if errors.Is(err, windows.ERROR_NOT_SUPPORTED) || errors.Is(err, windows.ERROR_INVALID_FUNCTION) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return descriptor.String(), nil
}

// linkSecurity reads the security descriptor of a link itself.
func linkSecurity(name *uint16) (sddl string, err error) {
	h, err := windows.CreateFile(name, windows.READ_CONTROL, shareAll, nil, windows.OPEN_EXISTING,
		windows.FILE_FLAG_BACKUP_SEMANTICS|windows.FILE_FLAG_OPEN_REPARSE_POINT, 0)
	if err != nil {
		return "", err
	}
	defer func() { _ = windows.CloseHandle(h) }()
	descriptor, err := windows.GetSecurityInfo(h, windows.SE_FILE_OBJECT, securityParts)
	if err != nil {
		return "", err
	}
	return descriptor.String(), nil
}

func reason(target *uint16, err error) error {
	return reasonOf(err, func() error {
		h, err := windows.CreateFile(target, windows.FILE_WRITE_DATA, shareAll, nil, windows.OPEN_EXISTING, 0, 0)
		if err == nil {
			_ = windows.CloseHandle(h)
		}
		return err
	})
}

// reasonOf replaces the error "access denied" by "sharing violation" if a file is the exe of a running process. Windows
// returns "access denied" in two cases: if permission is missing, and if the exe of a running process is deleted or
// replaced. To tell the two cases apart, reasonOf calls openToWrite, which returns a sharing violation for a running
// exe.
func reasonOf(err error, openToWrite func() error) error {
	if !errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return err
	}
	probe := openToWrite()
	if errors.Is(probe, windows.ERROR_SHARING_VIOLATION) || errors.Is(probe, windows.ERROR_USER_MAPPED_FILE) {
		return probe
	}
	return err
}
