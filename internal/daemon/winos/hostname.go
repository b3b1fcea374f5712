package winos

import (
	"fmt"
	"strings"
)

// longestHostname is DNS's limit for a label. Windows cuts the NetBIOS name after 15 characters by itself.
const longestHostname = 63

// checkHostname reports whether a computer may have this DNS host name: letters, digits and hyphens, no hyphen at an
// end, and not digits only, which Windows refuses. Source:
// https://learn.microsoft.com/en-us/troubleshoot/windows-server/active-directory/naming-conventions-for-computer-domain-site-ou.
func checkHostname(name string) error {
	wrong := name == "" || len(name) > longestHostname || name[0] == '-' || name[len(name)-1] == '-' ||
		strings.Trim(name, "0123456789") == ""
	for i := range len(name) {
		if c := name[i]; !isLetter(c) && (c < '0' || c > '9') && c != '-' {
			wrong = true
		}
	}
	if wrong {
		return fmt.Errorf("host name %q: %w", name, ErrInvalidName)
	}
	return nil
}
