package lint

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Severity tells what happens if a finding is ignored.
type Severity string

const (
	// Error is for what is refused, can never be scheduled, or does not start.
	Error Severity = "error"
	// Warning is for what is ignored on Windows or behaves in another way there.
	Warning Severity = "warning"
)

// Object names what a finding is about.
type Object struct {
	// File is where the object was read, empty for a live one.
	File string `json:"file,omitempty"`
	// Document counts the documents of the file from 1.
	Document  int    `json:"document,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (o Object) String() string {
	name := o.Name
	if o.Namespace != "" {
		name = o.Namespace + "/" + name
	}
	where := ""
	if o.File != "" {
		where = fmt.Sprintf("%s:%d: ", o.File, o.Document)
	}
	return where + o.Kind + " " + name
}

// Finding is one thing about one object.
type Finding struct {
	Object   Object   `json:"object"`
	Severity Severity `json:"severity"`
	// Rule is the short name of the rule, which does not change.
	Rule string `json:"rule"`
	// Field is the path from the object's root, empty when the object as a whole is meant.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// order sorts findings by object as read, then errors first, then by field.
func order(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Object.File, b.Object.File), a.Object.Document-b.Object.Document,
			strings.Compare(a.Object.String(), b.Object.String()),
			strings.Compare(string(a.Severity), string(b.Severity)), strings.Compare(a.Field, b.Field),
			strings.Compare(a.Rule, b.Rule))
	})
	return findings
}

// Print writes findings for people, an object at a time, and closes with a count.
func Print(out io.Writer, findings []Finding) error {
	var text strings.Builder
	errors, warnings := 0, 0
	for i, f := range findings {
		if i == 0 || f.Object != findings[i-1].Object {
			fmt.Fprintf(&text, "%s\n", f.Object)
		}
		if f.Severity == Error {
			errors++
		} else {
			warnings++
		}
		field := f.Field
		if field != "" {
			field += ": "
		}
		fmt.Fprintf(&text, "  %-7s  %s%s [%s]\n           fix: %s\n", f.Severity, field, f.Message, f.Rule, f.Fix)
	}
	fmt.Fprintf(&text, "%d errors, %d warnings\n", errors, warnings)
	_, err := io.WriteString(out, text.String())
	return err
}
