package winos

import "strings"

// isServer reports whether a ProductType is a server: ServerNT, or LanmanNT (domain controller), but not WinNT
// (client).
func isServer(productType string) bool {
	return strings.EqualFold(productType, "ServerNT") || strings.EqualFold(productType, "LanmanNT")
}
