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

// bootID names a boot.
//
// sequence is the number that the boot loader counts up with every boot (KUSER_SHARED_DATA.BootId):
// it doesn't depend on the clock, which time synchronisation often corrects in the first minutes of
// a virtual machine and which would look like a reboot that never was. Where there is none (Wine;
// Windows always has one), the moment of the boot has to do, less all corrections of the clock
// since.
func bootID(sequence uint32, bootTime, clockCorrections int64) (string, error) {
	if sequence != 0 {
		return "boot-" + strconv.FormatUint(uint64(sequence), 10), nil
	}
	if bootTime == 0 {
		return "", fmt.Errorf("time of the boot: %w", ErrNotFound)
	}
	return "time-" + strconv.FormatInt(bootTime-clockCorrections, 16), nil
}
