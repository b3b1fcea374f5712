package winos

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// version is what the registry says under HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion and in
// ProductOptions, as text and number.
type version struct {
	CurrentBuildNumber string
	UBR                uint64
	ProductName        string
	ProductType        string
}

// describe fills in the facts about Windows' version. kernelBuild is what RtlGetVersion says, 0 if
// unknown; it wins over the registry, which programs and people can edit.
func (v version) describe(facts *Facts, kernelBuild int) error {
	facts.ProductName = v.ProductName
	facts.UBR = int(v.UBR)
	facts.Server = isServer(v.ProductType)
	facts.Build = kernelBuild
	if kernelBuild > 0 {
		return nil
	}
	build, err := strconv.Atoi(strings.TrimSpace(v.CurrentBuildNumber))
	if err != nil || build <= 0 {
		return fmt.Errorf("build number %q of the registry: %w", v.CurrentBuildNumber, ErrNotFound)
	}
	facts.Build = build
	return nil
}

// isServer reads ProductType: WinNT is a client, ServerNT a server, LanmanNT a domain controller.
func isServer(productType string) bool {
	return strings.EqualFold(productType, "ServerNT") || strings.EqualFold(productType, "LanmanNT")
}

// bootSigns are what tells one boot from another.
type bootSigns struct {
	// sequence is the number that the boot loader counts up with every boot
	// (KUSER_SHARED_DATA.BootId); 0 on Wine. On some virtual machines it does not advance.
	sequence uint32
	// begun is when something that lasts until the next boot was first made; 0 where nobody may
	// make it.
	begun uint64
	// time is the moment of the boot, and corrections those of the clock since.
	time, corrections int64
}

// id names the boot: by its number and by what lasts as long as it. Either alone proves a reboot,
// and neither depends on the clock, which time synchronisation often corrects in the first minutes
// of a virtual machine and which would look like a reboot that never was. Where there is neither,
// the moment of the boot has to do, less all corrections of the clock since.
func (s bootSigns) id() (string, error) {
	if s.sequence != 0 || s.begun != 0 {
		return contract.BootName(s.sequence, s.begun), nil
	}
	if s.time == 0 {
		return "", fmt.Errorf("time of the boot: %w", ErrNotFound)
	}
	return "time-" + strconv.FormatInt(s.time-s.corrections, 16), nil
}

// bootKey is a key of the registry that Windows keeps in memory only, so that the next boot finds it
// no more.
type bootKey interface {
	// begun is the number in it, and 0 while there is none.
	begun() (uint64, error)
	// setBegun writes that number.
	setBegun(begun uint64) error
	// changed is when something in it was last written, or else when it was made.
	changed() (uint64, error)
	// counter is what the boot loader's number was when it was noted; 0 while it is not.
	counter() (uint32, error)
	setCounter(number uint32) error
	// volatile says whether Windows keeps it in memory only: somebody may have made it to last, or
	// imported it from a copy of the registry.
	volatile() (bool, error)
}

// bootOf gives both parts of a boot's name. A key that is still there proves that nothing was booted,
// even if the loader's number is another: a host that hibernates goes on with the kernel that it had.
func bootOf(key bootKey, sequence uint32) (number uint32, begun uint64, err error) {
	if begun, err = bootBegun(key); err != nil || begun == 0 || sequence == 0 {
		return sequence, begun, err
	}
	number, err = key.counter()
	switch {
	case err != nil || number == sequence:
		return number, begun, err
	case number == 0:
		return sequence, begun, key.setCounter(sequence)
	}
	if held, err := key.volatile(); err != nil || !held {
		return sequence, begun, err
	}
	return number, begun, nil
}

// bootBegun is the number of this boot. Whoever looks first writes it: the time of the key's last
// change, which is the time of its making only until somebody writes to it. Of those who look at
// once all write the same, since each makes sure that nobody had written when it read that time.
func bootBegun(key bootKey) (uint64, error) {
	begun, err := key.begun()
	if err != nil || begun != 0 {
		return begun, err
	}
	made, err := key.changed()
	if err != nil {
		return 0, err
	}
	if begun, err = key.begun(); err != nil || begun != 0 {
		return begun, err
	}
	return made, key.setBegun(made)
}
