package olm

import "strings"

// Variable is the environment variable for a flag of the operator, such as WMCO_PAYLOAD_DIR for --payload-dir: a
// Subscription can set environment variables only.
func Variable(flag string) string {
	return "WMCO_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
