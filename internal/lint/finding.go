package lint

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
)

// Severity says how serious a finding is.
type Severity string

const (
	// Error means that the API server refuses the object, that the scheduler never places its pods, or that its pods
	// don't start.
	Error Severity = "error"
	// Warning means that Windows ignores a field or treats the field differently.
	Warning Severity = "warning"
)

// Object identifies the object with the problem.
type Object struct {
	// File is the file with the object. It is empty for a live object.
	File      string `json:"file,omitempty"`
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
		where = o.File + ": "
	}
	return where + o.Kind + " " + name
}

// Finding is one problem of one object.
type Finding struct {
	Object   Object   `json:"object"`
	Severity Severity `json:"severity"`
	// Rule is the short name of the rule. It never changes.
	Rule string `json:"rule"`
	// Field is the path of the field, from the object's root. It is empty if the finding is about the whole object.
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Fix     string `json:"fix"`
}

// order sorts findings by file and object. The findings of one object are sorted by severity, with errors
// first, and then by field.
func order(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.Object.String(), b.Object.String()),
			strings.Compare(string(a.Severity), string(b.Severity)), strings.Compare(a.Field, b.Field),
			strings.Compare(a.Rule, b.Rule))
	})
	return findings
}

// Print writes the findings as text for people, grouped by object. The last line has the number of findings.
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
