package winos

import (
	"fmt"
	"strconv"
	"strings"
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
