package olm

import "strings"

// Variable is the environment variable beside a flag of the operator, WMCO_PAYLOAD_DIR beside --payload-dir: a
// Subscription can set nothing else.
func Variable(flag string) string {
	return "WMCO_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
