package mirror

import (
	"fmt"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Policy decides whether the source itself may be contacted. The values are the same as in mirrorSourcePolicy.
type Policy string

// Policies. An empty Policy means AllowContactingSource.
const (
	AllowContactingSource Policy = "AllowContactingSource"
	NeverContactSource    Policy = "NeverContactSource"
)

// Set is one entry of an ImageDigestMirrorSet or ImageTagMirrorSet as the user wrote it, not yet
// checked.
type Set struct {
	// Object names the object of this entry, for messages: ImageDigestMirrorSet/<name>.
	Object string
	Kind   contract.PullKind
	// Source is host[:port][/namespace…[/repository]] or *.domain; each mirror
	// host[:port][/namespace…[/repository]].
	Source  string
	Mirrors []string
	Policy  Policy
}

// Rejected is an invalid part of a Set. The other parts of the set apply.
type Rejected struct {
	Object string
	Kind   contract.PullKind
	Source string
	// Mirror is the rejected mirror. If it is empty, the source or the whole entry is rejected.
	Mirror string
	// Why is a sentence without a secret. Why and Problem repeat the user's text only quoted and shortened.
	Why string
}

// Problem returns the rejection as a problem for the user, with the number that the documents explain.
func (r Rejected) Problem() *contract.Problem {
	what := "source " + quote(r.Source)
	if r.Mirror != "" {
		what += ", mirror " + quote(r.Mirror)
	}
	return contract.NewProblem(contract.ReasonMirrorRejected, "%s: %s: %s", shorten(r.Object), what, r.Why)
}

// quote formats text from the cluster for messages: without control characters, and shortened.
func quote(text string) string { return fmt.Sprintf("%q", shorten(text)) }

// shown is how many bytes of the cluster's text a message repeats. A registry's host name has at most 253.
const shown = 280

func shorten(text string) string {
	if len(text) <= shown {
		return text
	}
	return text[:shown] + "…"
}
