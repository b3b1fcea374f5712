package mirror

import (
	"fmt"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Policy decides whether a pull may contact the source itself. The values are the same as in mirrorSourcePolicy.
type Policy string

// Policies. An empty Policy means AllowContactingSource.
const (
	AllowContactingSource Policy = "AllowContactingSource"
	NeverContactSource    Policy = "NeverContactSource"
)

// Set is one entry of an ImageDigestMirrorSet or ImageTagMirrorSet as the user wrote it, not yet checked.
type Set struct {
	// Object is the name of this entry's object in messages: ImageDigestMirrorSet/<name>.
	Object string
	Kind   contract.PullKind
	// Source is host[:port][/namespace…[/repository]] or *.domain. Each of the Mirrors is
	// host[:port][/namespace…[/repository]].
	Source  string
	Mirrors []string
	Policy  Policy
}

// `rejected` returns the problem for an invalid part of an entry. The valid parts of the entry still apply. If mirror
// is empty, the source or the whole entry is invalid. `why` gives the reason. It must not contain a secret, and may
// repeat the user's text only in the form that `quote` returns.
func rejected(object, source, mirror, why string) *contract.Problem {
	what := "source " + quote(source)
	if mirror != "" {
		what += ", mirror " + quote(mirror)
	}
	return contract.NewProblem(contract.ReasonMirrorRejected, "%s: %s: %s", shorten(object), what, why)
}

// quote formats text from the cluster for messages: in quotes, without control characters, and shortened.
func quote(text string) string { return fmt.Sprintf("%q", shorten(text)) }

// `shown` limits the bytes of the cluster's text that a message repeats. A registry's host name has at most 253 bytes.
const shown = 280

func shorten(text string) string {
	if len(text) <= shown {
		return text
	}
	return text[:shown] + "…"
}
