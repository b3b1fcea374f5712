package policy

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"
)

// Releases that an operator may meet on nodes: those of the two minor versions before its own, and,
// after it was taken back to an earlier one, of the next.
const (
	olderReleases = 2
	newerReleases = 1
)

// CheckSkew says in words why a node's release and the operator's are too far apart for one to rely
// on what the other says; empty when they are not. What is no version is taken to be near: a build
// without one is a developer's.
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
