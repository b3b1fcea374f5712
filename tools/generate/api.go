package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"
)

const apiIntroduction = `# API

The operator has two kinds of objects, in the API group windowsmachineconfig.openshift.io. On this page, an *instance*
is a WindowsInstance. [Concepts](../concepts.md) explains the other words.

`

// apiPage describes every custom resource definition in config/crd, and the constants of the API package.
func apiPage(root string) ([]byte, error) {
	definitions, err := filepath.Glob(filepath.Join(root, "config", "crd", "windowsmachineconfig.openshift.io_*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("looking for definitions in config/crd: %w", err)
	}
	if len(definitions) == 0 {
		return nil, errors.New("there is no definition in config/crd")
	}
	slices.Sort(definitions)
	var b bytes.Buffer
	b.WriteString(generated + apiIntroduction)
	for _, path := range definitions {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading a definition: %w", err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err = yaml.Unmarshal(content, &crd); err != nil {
			return nil, fmt.Errorf("decoding %s: %w", filepath.Base(path), err)
		}
		for i := range crd.Spec.Versions {
			describe(&b, crd, crd.Spec.Versions[i])
		}
	}
	words, err := constants(filepath.Join(root, "api", "v1alpha1"))
	if err != nil {
		return nil, err
	}
	vocabulary(&b, words)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// describe writes one version of one kind.
func describe(b *bytes.Buffer, crd apiextensionsv1.CustomResourceDefinition,
	version apiextensionsv1.CustomResourceDefinitionVersion) {
	schema := version.Schema.OpenAPIV3Schema
	fmt.Fprintf(b, "## %s\n\n%s\n\n", crd.Spec.Names.Kind, prose(schema.Description))
	table(b, []string{"", ""}, [][]string{
		{"API version", code(crd.Spec.Group + "/" + version.Name)},
		{"Scope", prose(string(crd.Spec.Scope))},
		{"Names", code(strings.Join(append([]string{crd.Spec.Names.Plural}, crd.Spec.Names.ShortNames...), "`, `"))},
		{"Columns", prose(columns(version.AdditionalPrinterColumns))},
	})
	for _, v := range schema.XValidations {
		fmt.Fprintf(b, "Rule: %s.\n\n", prose(v.Message))
	}
	for _, part := range []string{"spec", "status"} {
		property, ok := schema.Properties[part]
		if !ok {
			continue
		}
		fmt.Fprintf(b, "### %s of %s\n\n%s\n\n", part, crd.Spec.Names.Kind, prose(property.Description))
		for _, v := range property.XValidations {
			fmt.Fprintf(b, "Rule: %s.\n\n", prose(v.Message))
		}
		header := []string{"Field", "Type", "Default", "Limits", "Meaning"}
		if part == "status" {
			header = []string{"Field", "Type", "Meaning"}
		}
		var rows [][]string
		for _, f := range flatten(part, property) {
			row := []string{code(f.path), prose(f.kind()), f.initial(), f.limits(), prose(f.schema.Description)}
			if part == "status" {
				row = []string{row[0], row[1], row[4]} // omit defaults and limits: only the operator writes the status
			}
			rows = append(rows, row)
		}
		table(b, header, rows)
	}
}

// columns returns the columns of kubectl get.
func columns(all []apiextensionsv1.CustomResourceColumnDefinition) string {
	var usual, wide []string
	for _, c := range all {
		if c.Priority > 0 {
			wide = append(wide, c.Name)
		} else {
			usual = append(usual, c.Name)
		}
	}
	if len(wide) == 0 {
		return strings.Join(usual, ", ")
	}
	return strings.Join(usual, ", ") + "; with -o wide also " + strings.Join(wide, ", ")
}

// field is one field of an object, under its full path.
type field struct {
	path     string
	required bool
	schema   apiextensionsv1.JSONSchemaProps
}

// flatten lists the fields below an object, parents first. It doesn't list the fields of conditions, because they
// are the same in all Kubernetes objects.
func flatten(path string, object apiextensionsv1.JSONSchemaProps) []field {
	var all []field
	for name, schema := range object.Properties {
		all = append(all, field{path: path + "." + name, required: slices.Contains(object.Required, name),
			schema: schema})
	}
	slices.SortFunc(all, func(a, b field) int { return cmp.Compare(a.path, b.path) })
	var flat []field
	for _, f := range all {
		flat = append(flat, f)
		switch {
		case strings.HasSuffix(f.path, ".conditions"):
		case f.schema.Items != nil && f.schema.Items.Schema != nil:
			flat = append(flat, flatten(f.path+"[]", *f.schema.Items.Schema)...)
		default:
			flat = append(flat, flatten(f.path, f.schema)...)
		}
	}
	return flat
}

// kind returns the field's type in words.
func (f field) kind() string {
	kind := typeOf(f.schema)
	if f.required {
		kind += ", required"
	}
	return kind
}

func typeOf(s apiextensionsv1.JSONSchemaProps) string {
	switch {
	case s.XIntOrString:
		return "integer or string"
	case s.Type == "array" && s.Items != nil && s.Items.Schema != nil:
		return "list of " + typeOf(*s.Items.Schema)
	case s.Type == "object" && s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return "map of " + typeOf(*s.AdditionalProperties.Schema)
	case s.Format == "date-time":
		return "time"
	}
	return s.Type
}

func (f field) initial() string {
	if f.schema.Default == nil {
		return ""
	}
	raw := string(f.schema.Default.Raw)
	var text string
	if json.Unmarshal(f.schema.Default.Raw, &text) == nil {
		raw = text
	}
	return code(raw)
}

// limits returns all checks of the API server.
func (f field) limits() string {
	s := f.schema
	var words []string
	add := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	for _, e := range s.Enum {
		var value string
		if json.Unmarshal(e.Raw, &value) == nil {
			add("%s", code(value))
		}
	}
	if len(words) > 0 {
		words = []string{strings.Join(words, ", ")}
	}
	if s.Minimum != nil {
		add("at least %s", number(*s.Minimum))
	}
	if s.Maximum != nil {
		add("at most %s", number(*s.Maximum))
	}
	if s.MinLength != nil && *s.MinLength > 0 {
		add("not empty")
	}
	for _, bound := range []struct {
		value *int64
		words string
	}{
		{s.MaxLength, "at most %d characters"},
		{s.MinItems, "at least %d items"}, {s.MaxItems, "at most %d items"},
		{s.MinProperties, "at least %d entries"}, {s.MaxProperties, "at most %d entries"},
	} {
		if bound.value != nil {
			add(bound.words, *bound.value)
		}
	}
	if s.Pattern != "" {
		add("%s", code(s.Pattern))
	}
	for _, v := range s.XValidations {
		add("%s", prose(v.Message))
	}
	return strings.Join(words, "; ")
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

// vocabulary explains the values of fields: phases and types of conditions.
func vocabulary(b *bytes.Buffer, words []constant) {
	b.WriteString("## Phases\n\nValues of `status.phase` of a WindowsInstance, in the order of a host's life.\n\n")
	var rows [][]string
	for _, w := range words {
		if w.kind == "Phase" {
			rows = append(rows, []string{code(w.value), prose(sentence(w.comment, ""))})
		}
	}
	table(b, []string{"Phase", "What happens"}, rows)
	b.WriteString("## Conditions\n\n")
	rows = nil
	for _, w := range words {
		if strings.HasPrefix(w.name, "Condition") {
			rows = append(rows, []string{code(w.value), prose(sentence(w.comment, w.name+" is "))})
		}
	}
	table(b, []string{"Type", "Meaning"}, rows)
	b.WriteString("## Removal policies\n\n")
	rows = nil
	for _, w := range words {
		if w.kind == "RemovalPolicy" {
			rows = append(rows, []string{code(w.value), prose(sentence(w.comment, w.name+" "))})
		}
	}
	table(b, []string{"Policy", "Meaning"}, rows)
}
