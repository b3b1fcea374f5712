package winos

import (
	"fmt"
	"strings"
)

// longestHostname is DNS's limit for a label. Windows itself shortens the NetBIOS name to 15 characters.
const longestHostname = 63

// checkHostname returns an error if a computer can't have this DNS host name. A name has letters, digits and hyphens,
// and neither begins nor ends with a hyphen. Windows also refuses a name that has only digits. Source:
// https://learn.microsoft.com/en-us/troubleshoot/windows-server/active-directory/naming-conventions-for-computer-domain-site-ou.
func checkHostname(name string) error {
	const digits, letters = "0123456789", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	if name == "" || len(name) > longestHostname || strings.Trim(name, digits+letters+"-") != "" ||
		name[0] == '-' || name[len(name)-1] == '-' || strings.Trim(name, digits) == "" {
		return fmt.Errorf("host name %q: %w", name, ErrInvalidName)
	}
	return nil
}
