package olm

import "strings"

// Variable returns the name of the environment variable that sets a flag of the operator. For example, it is
// WMCO_PAYLOAD_DIR for --payload-dir. The operator reads these variables because a Subscription of OLM can't set flags.
func Variable(flag string) string {
	return "WMCO_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
