package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Supported releases on nodes: the two minor versions before the operator's, and, after a downgrade of the operator,
// the next one.
const (
	olderReleases = 2
	newerReleases = 1
)

// CheckSkew returns why a node's release and the operator's are too far apart to rely on each other, or "". If a
// string is not a version, CheckSkew returns "", because developers' builds have no version.
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
