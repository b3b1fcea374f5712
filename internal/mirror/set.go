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

// rejected returns the problem of an invalid part of an object. The other parts apply. If mirror is empty, the source
// or the whole entry is rejected. The text why contains no secret, and repeats the user's text only quoted and
// shortened.
func rejected(object, source, mirror, why string) *contract.Problem {
	what := "source " + quote(source)
	if mirror != "" {
		what += ", mirror " + quote(mirror)
	}
	return contract.NewProblem(contract.ReasonMirrorRejected, "%s: %s: %s", shorten(object), what, why)
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
