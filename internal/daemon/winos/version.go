package winos

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// version has the values of HKLM\SOFTWARE\Microsoft\Windows NT\CurrentVersion and ProductOptions in the
// registry.
type version struct {
	CurrentBuildNumber string
	UBR                uint64
	ProductName        string
	ProductType        string
}

// describe sets the facts about Windows' version. kernelBuild is RtlGetVersion's build, or 0. It takes
// precedence over the registry, which programs and people can edit.
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

// isServer evaluates ProductType: WinNT is a client, ServerNT a server, LanmanNT a domain controller.
func isServer(productType string) bool {
	return strings.EqualFold(productType, "ServerNT") || strings.EqualFold(productType, "LanmanNT")
}

// bootSigns are the values that distinguish one boot from another.
type bootSigns struct {
	// sequence is the boot loader's count of boots (KUSER_SHARED_DATA.BootId), or 0 on Wine. On some virtual
	// machines it doesn't advance.
	sequence uint32
	// begun is when the boot's volatile key was first created, or 0 if no caller may create it.
	begun uint64
	// time is the time of the boot. corrections is the sum of clock corrections since.
	time, corrections int64
}

// id returns the boot's id, from the loader's count and the time of the volatile key. A change of either
// proves a reboot, and neither depends on the clock. Time synchronisation often corrects the clock in the
// first minutes of a virtual machine, which would look like a reboot. If both are missing, the id is the time
// of the boot without the later corrections of the clock.
func (s bootSigns) id() (string, error) {
	if s.sequence != 0 || s.begun != 0 {
		return contract.BootName(s.sequence, s.begun), nil
	}
	if s.time == 0 {
		return "", fmt.Errorf("time of the boot: %w", ErrNotFound)
	}
	return "time-" + strconv.FormatInt(s.time-s.corrections, 16), nil
}

// bootKey is a registry key that Windows keeps only in memory, so that the next boot deletes it.
type bootKey interface {
	// begun returns the stored number, or 0 if there is none.
	begun() (uint64, error)
	// setBegun stores the number.
	setBegun(begun uint64) error
	// changed returns when the key was last written, or created.
	changed() (uint64, error)
	// counter returns the stored loader's count, or 0 if there is none.
	counter() (uint32, error)
	setCounter(number uint32) error
	// volatile reports whether Windows keeps the key only in memory. Someone may have created a persistent
	// key, or imported it from a registry backup.
	volatile() (bool, error)
}

// bootOf returns both parts of a boot's id. If the key still exists, there was no boot, even if the loader's
// count differs: a hibernated host resumes with the same kernel.
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

// bootBegun returns the number of this boot. The first caller stores it: the time of the key's last change,
// which equals the time of its creation until someone writes to it. Concurrent callers store the same number,
// because each one checks that no one had written when it read the time.
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
