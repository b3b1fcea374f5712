package lint

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Severity is the effect of a problem.
type Severity string

const (
	// Error means that the object is refused, can never be scheduled, or does not start.
	Error Severity = "error"
	// Warning means that a field is ignored on Windows, or behaves differently there.
	Warning Severity = "warning"
)

// Object identifies the object of a finding.
type Object struct {
	// File is the file of the object. It is empty for a live object.
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

// Finding is one problem of one object.
type Finding struct {
	Object   Object   `json:"object"`
	Severity Severity `json:"severity"`
	// Rule is the short name of the rule, which does not change.
	Rule string `json:"rule"`
	// Field is the path from the object's root. It is empty if the finding is about the whole object.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// order sorts findings by object in the order of reading, then errors first, then by field.
func order(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Object.File, b.Object.File), a.Object.Document-b.Object.Document,
			strings.Compare(a.Object.String(), b.Object.String()),
			strings.Compare(string(a.Severity), string(b.Severity)), strings.Compare(a.Field, b.Field),
			strings.Compare(a.Rule, b.Rule))
	})
	return findings
}

// Print writes findings for people, grouped by object, and a count at the end.
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
