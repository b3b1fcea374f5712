package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// The supported minor versions on nodes: the operator's, the two before it, and the next one. A node has the next one
// after a downgrade of the operator.
const (
	olderReleases = 2
	newerReleases = 1
)

// CheckSkew returns why a node's release is too far from the operator's release for the two to work together, or "". It
// also returns "" if either string is not a version, because developers' builds have no version.
func CheckSkew(operator, node string) string {
	o, err := version.ParseGeneric(operator)
	if err != nil {
		return ""
	}
	n, err := version.ParseGeneric(node)
	if err != nil {
		return ""
	}
	apart := int(n.Minor()) - int(o.Minor()) //nolint:gosec // minor versions are small numbers
	if n.Major() == o.Major() && apart >= -olderReleases && apart <= newerReleases {
		return ""
	}
	return fmt.Sprintf("the node is at release %d.%d and the operator is %d.%d; nodes of up to %d minor versions "+
		"before and %d after are supported",
		n.Major(), n.Minor(), o.Major(), o.Minor(), olderReleases, newerReleases)
}
