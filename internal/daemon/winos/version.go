package winos

import "strings"

// isServer reports whether a ProductType is ServerNT or LanmanNT (domain controller), and not WinNT (client).
func isServer(productType string) bool {
	return strings.EqualFold(productType, "ServerNT") || strings.EqualFold(productType, "LanmanNT")
}
