package resolver

import (
	"fmt"
	"strings"
)

// Attempt is one registry that was skipped.
type Attempt struct {
	// Source is host/repository, as the rules name it.
	Source string
	Reason Reason
	Detail string
}

func (a Attempt) String() string {
	return a.Source + ": " + (&fault{reason: a.Reason, detail: a.Detail}).Error()
}

// Report describes one pull that skipped registries. It contains no secret.
type Report struct {
	// Image is registry/repository with a tag or digest. The digest may belong to a manifest or a layer.
	Image string
	// Served is the registry that delivered the image. It is empty if none did, or if the transfer broke off.
	Served string
	// Attempts are the skipped registries in the order of the attempts; empty if there was no registry to try.
	Attempts []Attempt
	// Refused tells why the cluster refuses the image. It is empty if the cluster allows the image.
	Refused string
}

// IsFailure reports whether no registry delivered the image.
func (r Report) IsFailure() bool { return r.Served == "" }

const (
	// maxMessage is the maximum length of an event's message in bytes, see config/admission/event.yaml.
	maxMessage = 1024
	// attemptsEnd is a length in bytes. If another attempt would make a message longer than this, the message only
	// gives the number of the remaining attempts.
	attemptsEnd = 900
)

// Message returns a sentence for a user, short enough for an event.
func (r Report) Message() string {
	text := r.sentence()
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}

func (r Report) sentence() string {
	text := "Pulled " + r.Image + " from " + r.Served + ". "
	if r.IsFailure() {
		text = "Can't pull " + r.Image + ". "
	}
	switch {
	case r.Refused != "":
		return text + "Refused: " + r.Refused
	case len(r.Attempts) == 0:
		return text + "No mirror serves this kind of pull, and the source must never be contacted"
	}
	text += "Skipped: " + r.Attempts[0].String()
	for i, a := range r.Attempts[1:] {
		next := "; " + a.String()
		if len(text)+len(next) > attemptsEnd {
			return fmt.Sprintf("%s; and %d more", text, len(r.Attempts)-1-i)
		}
		text += next
	}
	return text
}
