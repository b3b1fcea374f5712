package winos

import "strings"

// isServer evaluates the registry's ProductType: ServerNT is a server, LanmanNT a domain controller, WinNT a client.
func isServer(productType string) bool {
	return strings.EqualFold(productType, "ServerNT") || strings.EqualFold(productType, "LanmanNT")
}
