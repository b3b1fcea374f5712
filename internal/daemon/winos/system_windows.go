package winos

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/registry"
)

// system is this machine as a whole.
type system struct {
	dismTurn *sync.Mutex
}

var _ System = system{}

// Keys of the registry, under HKEY_LOCAL_MACHINE.
const (
	versionKey        = `SOFTWARE\Microsoft\Windows NT\CurrentVersion`
	productKey        = `SYSTEM\CurrentControlSet\Control\ProductOptions`
	cryptographyKey   = `SOFTWARE\Microsoft\Cryptography`
	computerNameKey   = `SYSTEM\CurrentControlSet\Control\ComputerName\ComputerName`
	activeNameKey     = `SYSTEM\CurrentControlSet\Control\ComputerName\ActiveComputerName`
	computerNameValue = "ComputerName"
	// Windows creates these keys when it needs a reboot, and deletes them at boot.
	servicingKey = `SOFTWARE\Microsoft\Windows\CurrentVersion\Component Based Servicing\RebootPending`
	updateKey    = `SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired`
	// The session manager processes this list before anything else runs.
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

// readHostname reads the host name of this boot. A name that was set since then appears after the next boot.
// Source: https://learn.microsoft.com/en-us/windows/win32/api/sysinfoapi/nf-sysinfoapi-getcomputernameexw.
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

func readVersion(facts *Facts) error {
	var found version
	var err error
	if found.ProductName, err = text(versionKey, "ProductName"); err != nil {
		return err
	}
	if found.ProductType, err = text(productKey, "ProductType"); err != nil {
		return err
	}
	// Both values are optional: the kernel also knows the build, and a Windows without updates has no UBR.
	if found.CurrentBuildNumber, err = text(versionKey, "CurrentBuildNumber"); err != nil &&
		!errors.Is(err, ErrNotFound) {
		return err
	}
	if found.UBR, err = number(versionKey, "UBR"); err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	return found.describe(facts, int(windows.RtlGetVersion().BuildNumber))
}

func readBoot(facts *Facts) (err error) {
	sequence, err := bootSequence()
	if err != nil {
		return err
	}
	var times struct {
		BootTime, CurrentTime, TimeZoneBias int64
		TimeZoneID, _                       uint32
		BootTimeBias, SleepTimeBias         uint64
	}
	// Source:
	// https://learn.microsoft.com/en-us/windows/win32/api/winternl/nf-winternl-ntquerysysteminformation
	// (SystemTimeOfDayInformation).
	err = windows.NtQuerySystemInformation(windows.SystemTimeOfDayInformation, unsafe.Pointer(&times),
		uint32(unsafe.Sizeof(times)), nil)
	if err != nil && sequence == 0 {
		return fail(err, "reading the time of the boot")
	}
	sequence, begun, err := readBegun(sequence)
	if err != nil {
		return err
	}
	facts.BootID, err = bootSigns{sequence: sequence, begun: begun, time: times.BootTime,
		corrections: int64(times.BootTimeBias)}.id()
	return err
}

// bootKeyPath is the key of the boot, and these are its values.
const (
	bootKeyPath  = `SOFTWARE\windows-instance-config-daemon-boot`
	bootValue    = "Begun"
	counterValue = "Counter"
)

// readBegun reads both parts of the boot's id. If the boot's key doesn't exist and we may not create it,
// begun is 0.
func readBegun(sequence uint32) (number uint32, begun uint64, err error) {
	key, err := makeVolatile(bootKeyPath)
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		key, err = registry.OpenKey(registry.LOCAL_MACHINE, bootKeyPath, registry.QUERY_VALUE)
		if errors.Is(err, registry.ErrNotExist) || errors.Is(err, windows.ERROR_ACCESS_DENIED) {
			return sequence, 0, nil
		}
	}
	if err != nil {
		return 0, 0, fail(err, "making the key of the boot")
	}
	defer closeKey(key)
	number, begun, err = bootOf(volatileKey{key}, sequence)
	return number, begun, fail(err, "reading the key of the boot")
}

// makeVolatile creates or opens a key that doesn't survive the next boot.
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
		registry.QUERY_VALUE|registry.SET_VALUE|registry.CREATE_SUB_KEY, 0, uintptr(unsafe.Pointer(&key)), 0)
	if code != 0 {
		return 0, windows.Errno(code)
	}
	return key, nil
}

// volatileKey is the boot's key.
type volatileKey struct{ registry.Key }

var _ bootKey = volatileKey{}

func (k volatileKey) begun() (uint64, error) { return k.value(bootValue) }

func (k volatileKey) counter() (uint32, error) {
	number, err := k.value(counterValue)
	return uint32(number), err
}

func (k volatileKey) value(name string) (uint64, error) {
	value, _, err := k.GetIntegerValue(name)
	if errors.Is(err, registry.ErrNotExist) || errors.Is(err, registry.ErrUnexpectedType) {
		return 0, nil
	}
	return value, err
}

func (k volatileKey) setBegun(begun uint64) error { return k.set(k.SetQWordValue(bootValue, begun)) }

func (k volatileKey) setCounter(number uint32) error {
	return k.set(k.SetDWordValue(counterValue, number))
}

func (volatileKey) set(err error) error {
	if errors.Is(err, windows.ERROR_ACCESS_DENIED) { // an administrator's process will set it
		return nil
	}
	return err
}

// volatile tries to create a persistent key below this key. Windows refuses this below a volatile key.
func (k volatileKey) volatile() (bool, error) {
	const probe = "lasting"
	key, _, err := registry.CreateKey(k.Key, probe, registry.QUERY_VALUE)
	if errors.Is(err, windows.ERROR_CHILD_MUST_BE_VOLATILE) || errors.Is(err, windows.ERROR_ACCESS_DENIED) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	closeKey(key)
	return false, registry.DeleteKey(k.Key, probe)
}

func (k volatileKey) changed() (uint64, error) {
	info, err := k.Stat()
	if err != nil {
		return 0, err
	}
	return uint64(info.ModTime().UnixNano()), nil
}

// bootSequence reads KUSER_SHARED_DATA.BootId, "incremented for each boot attempt by the OS loader", from the
// page that the kernel shares with every process. It uses ReadProcessMemory on its own process, which returns
// an error where a pointer would crash. Source:
// https://learn.microsoft.com/en-us/windows-hardware/drivers/ddi/ntddk/ns-ntddk-kuser_shared_data.
func bootSequence() (uint32, error) {
	const page, offset = 0x7ffe0000, 0x2c4
	var sequence uint32
	err := windows.ReadProcessMemory(windows.CurrentProcess(), page+offset, (*byte)(unsafe.Pointer(&sequence)),
		unsafe.Sizeof(sequence), nil)
	return sequence, fail(err, "reading the number of the boot")
}

func readAdmin(facts *Facts) error {
	administrators, err := windows.CreateWellKnownSid(windows.WinBuiltinAdministratorsSid)
	if err != nil {
		return fail(err, "naming the group Administrators")
	}
	// Token 0 is the caller's. Without elevation, the group is for denials only, and the result is false.
	facts.Admin, err = windows.Token(0).IsMember(administrators)
	return fail(err, "looking for administrators' rights")
}

func readMemory(facts *Facts) error {
	// MEMORYSTATUSEX:
	// https://learn.microsoft.com/en-us/windows/win32/api/sysinfoapi/ns-sysinfoapi-memorystatusex.
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

// readReboot checks whether Windows itself needs a reboot: for servicing, updates or a new computer name.
// PendingFileRenameOperations, which is often listed as a fourth sign, is reported separately, because any
// installer or browser update sets it.
func readReboot(facts *Facts) error {
	for _, sign := range []struct{ name, path string }{{SignServicing, servicingKey}, {SignUpdate, updateKey}} {
		there, err := keyExists(sign.path)
		if err != nil {
			return err
		}
		if there {
			facts.RebootPending, facts.RebootSigns = true, append(facts.RebootSigns, sign.name)
		}
	}
	renames, err := texts(sessionKey, renamesValue)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	facts.ReplacedAtBoot = replacedAtBoot(renames)
	active, err := text(activeNameKey, computerNameValue)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	next, err := text(computerNameKey, computerNameValue)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	if active != "" && next != "" && !strings.EqualFold(active, next) {
		facts.RebootPending = true
	}
	return nil
}

// SetHostname fails on a domain member, where the name must also change in the directory.
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

// text reads a string from the registry.
func text(path, name string) (string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if err != nil {
		return "", absent(err, path)
	}
	defer closeKey(key)
	value, _, err := key.GetStringValue(name)
	return value, absent(err, path+`\`+name)
}

// texts reads a list of strings from the registry. Strings may be empty.
func texts(path, name string) ([]string, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if err != nil {
		return nil, absent(err, path)
	}
	defer closeKey(key)
	values, _, err := key.GetStringsValue(name)
	return values, absent(err, path+`\`+name)
}

// number reads a number from the registry.
func number(path, name string) (uint64, error) {
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.QUERY_VALUE|registry.WOW64_64KEY)
	if err != nil {
		return 0, absent(err, path)
	}
	defer closeKey(key)
	value, _, err := key.GetIntegerValue(name)
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

// absent maps a missing registry key or value to ErrNotFound; meaning would map it to a missing file.
func absent(err error, what string) error {
	if errors.Is(err, registry.ErrNotExist) {
		return fmt.Errorf("reading the registry: %s: %w", what, ErrNotFound)
	}
	return fail(err, "reading the registry: %s", what)
}
