package winos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

type system struct {
	dismTurn *sync.Mutex
}

var _ System = system{}

// Registry keys under HKEY_LOCAL_MACHINE.
const (
	versionKey      = `SOFTWARE\Microsoft\Windows NT\CurrentVersion`
	productKey      = `SYSTEM\CurrentControlSet\Control\ProductOptions`
	cryptographyKey = `SOFTWARE\Microsoft\Cryptography`
	// Windows creates these keys when it needs a reboot, and deletes them at boot.
	servicingKey = `SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending`
	updateKey    = `SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired`
	// The session manager performs the operations in this list at boot, before any other program runs.
	sessionKey   = `SYSTEM\CurrentControlSet\Control\Session Manager`
	renamesValue = "PendingFileRenameOperations"
)

func (system) Now() time.Time { return time.Now().Round(0) }

func (system) Facts(ctx context.Context) (Facts, error) {
	if err := ctx.Err(); err != nil {
		return Facts{}, err
	}
	var facts Facts
	for _, step := range []func(*Facts) error{
		readHostname, readMachineID, readVersion, readBoot, readAdmin, readMemory, readDisk, readReboot, readCards,
	} {
		if err := step(&facts); err != nil {
			return Facts{}, err
		}
	}
	return facts, nil
}

// readHostname reads the host name of this boot. A newer name applies after the next boot. Source:
// https://learn.microsoft.com/en-us/windows/win32/api/sysinfoapi/nf-sysinfoapi-getcomputernameexw.
func readHostname(facts *Facts) (err error) {
	if facts.Hostname, err = computerName(windows.ComputerNamePhysicalDnsHostname); err == nil {
		facts.FullName, err = computerName(windows.ComputerNamePhysicalDnsFullyQualified)
	}
	return err
}

func computerName(kind uint32) (string, error) {
	size := uint32(longestHostname + 1)
	for {
		buffer := make([]uint16, size)
		err := windows.GetComputerNameEx(kind, &buffer[0], &size)
		if errors.Is(err, windows.ERROR_MORE_DATA) && size > uint32(len(buffer)) {
			continue
		}
		return windows.UTF16ToString(buffer), fail(err, "reading the computer's name")
	}
}

func readMachineID(facts *Facts) (err error) {
	facts.MachineID, err = text(cryptographyKey, "MachineGuid")
	return err
}

func readVersion(facts *Facts) (err error) {
	if facts.ProductName, err = text(versionKey, "ProductName"); err != nil {
		return err
	}
	kind, err := text(productKey, "ProductType")
	if err != nil {
		return err
	}
	facts.Server = isServer(kind)
	facts.Build = int(windows.RtlGetVersion().BuildNumber)
	revision, err := number(versionKey, "UBR")
	if err != nil && !errors.Is(err, ErrNotFound) { // a Windows without updates has no UBR
		return err
	}
	facts.UBR = int(revision)
	return nil
}

// bootKey is a registry key that Windows stores only in memory, so the key exists until the next boot. No program
// writes values to it, so its time of change is its time of creation.
const bootKey = `SOFTWARE\windows-instance-config-daemon-boot`

// readBoot derives the boot ID from the time when bootKey was created in this boot. Unlike the time of the boot, this
// time doesn't change when the clock is corrected. After hibernation, a host is still in the same boot. If the key
// doesn't exist and this process has no right to create it, the boot ID is empty.
func readBoot(facts *Facts) error {
	key, err := makeVolatile(bootKey)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return nil
	}
	if err != nil {
		return fail(err, "making the key of the boot")
	}
	defer closeKey(key)
	info, err := key.Stat()
	if err != nil {
		return fail(err, "reading the key of the boot")
	}
	facts.BootID = "boot-" + strconv.FormatInt(info.ModTime().UnixNano(), 16)
	return nil
}

// makeVolatile opens a registry key. If the key is missing, makeVolatile creates it, and the next boot deletes it.
func makeVolatile(path string) (registry.Key, error) {
	create, err := function("advapi32.dll", "RegCreateKeyExW")
	if err != nil {
		return 0, err
	}
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, err
	}
	const volatile = 1 // REG_OPTION_VOLATILE
	var key registry.Key
	code, _, _ := create.Call(uintptr(registry.LOCAL_MACHINE), uintptr(unsafe.Pointer(name)), 0, 0, volatile,
		registry.QUERY_VALUE, 0, uintptr(unsafe.Pointer(&key)), 0)
	if code != 0 {
		return 0, windows.Errno(code)
	}
	return key, nil
}

func readAdmin(facts *Facts) error {
	administrators, err := windows.CreateWellKnownSid(windows.WinBuiltinAdministratorsSid)
	if err != nil {
		return fail(err, "naming the group Administrators")
	}
	// Token 0 is the caller's token. If it isn't elevated, IsMember returns false.
	facts.Admin, err = windows.Token(0).IsMember(administrators)
	return fail(err, "looking for administrators' rights")
}

func readMemory(facts *Facts) error {
	// MEMORYSTATUSEX: https://learn.microsoft.com/en-us/windows/win32/api/sysinfoapi/ns-sysinfoapi-memorystatusex.
	var status struct {
		Length, Load         uint32
		TotalPhys, AvailPhys uint64
		_                    [5]uint64
	}
	status.Length = uint32(unsafe.Sizeof(status))
	globalMemoryStatusEx, err := function("kernel32.dll", "GlobalMemoryStatusEx")
	if err != nil {
		return err
	}
	if ok, _, err := globalMemoryStatusEx.Call(uintptr(unsafe.Pointer(&status))); ok == 0 {
		return fail(err, "reading the size of memory")
	}
	facts.Memory = int64(status.TotalPhys)
	return nil
}

func readDisk(facts *Facts) error {
	dir, err := windows.GetSystemWindowsDirectory()
	if err != nil {
		return fail(err, "finding the system drive")
	}
	root, err := windows.UTF16PtrFromString(filepath.VolumeName(dir) + `\`)
	if err != nil {
		return fail(err, "finding the system drive")
	}
	var free, total, allFree uint64
	if err := windows.GetDiskFreeSpaceEx(root, &free, &total, &allFree); err != nil {
		return fail(err, "reading the free space of the system drive")
	}
	facts.DiskFree, facts.DiskTotal = int64(free), int64(total)
	return nil
}

// readReboot checks whether Windows needs a reboot for servicing or updates. PendingFileRenameOperations is often
// listed as a third sign. readReboot reports it separately, because any installer or browser update sets it.
func readReboot(facts *Facts) error {
	for _, sign := range []struct{ name, path string }{{SignServicing, servicingKey}, {SignUpdate, updateKey}} {
		there, err := keyExists(sign.path)
		if err != nil {
			return err
		}
		if there {
			facts.RebootSigns = append(facts.RebootSigns, sign.name)
		}
	}
	renames, err := read(sessionKey, renamesValue, registry.Key.GetStringsValue)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	facts.ReplacedAtBoot = replacedAtBoot(renames)
	return nil
}

// SetHostname returns an error on a domain member, because the name in the domain's directory would have to change too.
func (system) SetHostname(ctx context.Context, name string) error {
	if err := errors.Join(ctx.Err(), checkHostname(name)); err != nil {
		return err
	}
	member, err := inDomain()
	if err != nil {
		return err
	}
	if member {
		return fmt.Errorf("setting the host name: the computer is a member of a domain: %w", ErrUnsupported)
	}
	text, err := windows.UTF16PtrFromString(name)
	if err != nil {
		return fail(err, "setting the host name")
	}
	setComputerNameEx, err := function("kernel32.dll", "SetComputerNameExW")
	if err != nil {
		return err
	}
	// Windows sets the NetBIOS name by itself.
	if ok, _, err := setComputerNameEx.Call(windows.ComputerNamePhysicalDnsHostname,
		uintptr(unsafe.Pointer(text))); ok == 0 {
		return fail(err, "setting the host name")
	}
	return nil
}

func inDomain() (bool, error) {
	var name *uint16
	var status uint32
	if err := windows.NetGetJoinInformation(nil, &name, &status); err != nil {
		return false, fail(err, "looking for a domain")
	}
	if name != nil {
		_ = windows.NetApiBufferFree((*byte)(unsafe.Pointer(name)))
	}
	return status == windows.NetSetupDomainName, nil
}

func text(path, name string) (string, error) { return read(path, name, registry.Key.GetStringValue) }

func number(path, name string) (uint64, error) { return read(path, name, registry.Key.GetIntegerValue) }

func read[T any](path, name string, get func(registry.Key, string) (T, uint32, error)) (none T, err error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if err != nil {
		return none, absent(err, path)
	}
	defer closeKey(key)
	value, _, err := get(key, name)
	return value, absent(err, path+`\`+name)
}

func keyExists(path string) (bool, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if errors.Is(err, registry.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, absent(err, path)
	}
	closeKey(key)
	return true, nil
}

// If a key or value is missing, absent returns ErrNotFound. `fail` would return fs.ErrNotExist.
func absent(err error, what string) error {
	if errors.Is(err, registry.ErrNotExist) {
		return fmt.Errorf("reading the registry: %s: %w", what, ErrNotFound)
	}
	return fail(err, "reading the registry: %s", what)
}
