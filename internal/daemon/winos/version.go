package winos

import (
	"fmt"
	"strconv"
	"strings"
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
	begun int64
	// time is the moment of the boot, and corrections those of the clock since.
	time, corrections int64
}

// id names the boot: by its number and by what lasts as long as it. Either alone proves a reboot,
// and neither depends on the clock, which time synchronisation often corrects in the first minutes
// of a virtual machine and which would look like a reboot that never was. Where there is neither,
// the moment of the boot has to do, less all corrections of the clock since.
func (s bootSigns) id() (string, error) {
	if s.sequence != 0 || s.begun != 0 {
		return "boot-" + strconv.FormatUint(uint64(s.sequence), 10) + "-" + strconv.FormatInt(s.begun, 16), nil
	}
	if s.time == 0 {
		return "", fmt.Errorf("time of the boot: %w", ErrNotFound)
	}
	return "time-" + strconv.FormatInt(s.time-s.corrections, 16), nil
}
