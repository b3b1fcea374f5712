package mirror

import (
	"fmt"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Policy says whether the source itself may be asked. The values are those of mirrorSourcePolicy.
type Policy string

// Policies. An empty one is AllowContactingSource.
const (
	AllowContactingSource Policy = "AllowContactingSource"
	NeverContactSource    Policy = "NeverContactSource"
)

// Set is one entry of an ImageDigestMirrorSet or ImageTagMirrorSet as the user wrote it, not yet
// checked.
type Set struct {
	// Object names the object that the entry is of, for messages: ImageDigestMirrorSet/<name>.
	Object string
	Kind   contract.PullKind
	// Source is host[:port][/namespace…[/repository]] or *.domain; each mirror
	// host[:port][/namespace…[/repository]].
	Source  string
	Mirrors []string
	Policy  Policy
}

// Rejected is a part of a Set that can't be followed. The rest of the set is.
type Rejected struct {
	Object string
	Kind   contract.PullKind
	Source string
	// Mirror is the one that is left out. Empty: the source or the entry as a whole is.
	Mirror string
	// Why is a sentence without a secret. What the user wrote stands in it, and in Problem, quoted
	// and shortened.
	Why string
}

// Problem is what a user is told, with the number under which the documents explain it.
func (r Rejected) Problem() *contract.Problem {
	what := "source " + quote(r.Source)
	if r.Mirror != "" {
		what += ", mirror " + quote(r.Mirror)
	}
	return contract.NewProblem(contract.ReasonMirrorRejected, "%s: %s: %s", shorten(r.Object), what, r.Why)
}

// quote makes text from the cluster fit to be shown: no control characters, not endless.
func quote(text string) string { return fmt.Sprintf("%q", shorten(text)) }

// shown is how much of a foreign text a message repeats, in bytes. A registry's host name has at
// most 253.
const shown = 280

func shorten(text string) string {
	if len(text) <= shown {
		return text
	}
	return text[:shown] + "…"
}
