package winos

import "strings"

// isServer reports whether a ProductType in the registry is a server: WinNT is a client, ServerNT a server, and
// LanmanNT a domain controller, which is also a server.
func isServer(productType string) bool {
	return strings.EqualFold(productType, "ServerNT") || strings.EqualFold(productType, "LanmanNT")
}
