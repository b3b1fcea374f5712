package main

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the pages instead of comparing them")

const root = "../.."

func TestCommittedPagesAreFresh(t *testing.T) {
	t.Parallel()
	if *update {
		if err := run(root); err != nil {
			t.Fatal(err)
		}
	}
	all, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		committed, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(p.path)))
		if err != nil || !bytes.Equal(committed, p.content) {
			t.Errorf("%s does not match the code (%v): run make generate", p.path, err)
		}
	}
}

// If the last cell of a row is empty, a field, phase or reason has no explanation. The rows of a kind's own table
// have two cells.
func TestEverythingHasAMeaning(t *testing.T) {
	t.Parallel()
	all, err := pages(root)
	if err != nil {
		t.Fatal(err)
	}
	unexplained := regexp.MustCompile("(?m)^\\| .*`.*\\|  \\|$")
	for _, p := range all {
		for _, row := range unexplained.FindAll(p.content, -1) {
			t.Errorf("%s does not explain %s", p.path, row)
		}
	}
}

func TestConstantsAreFoundWithTheirComments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	source := "package a\n\n// Words.\nconst (\n\t// First comes above.\n\tFirst Kind = \"one\"\n\tSecond Kind = " +
		"`two` // comes beside\n\tThird = 3\n\tFourth = Second + \"!\" // is a sum\n)\n\nvar Other = \"no\"\n"
	for name, content := range map[string]string{"a.go": source, "a_test.go": "package a\n\nconst Tested = \"no\"\n",
		"note.txt": "no"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := constants(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []constant{
		{name: "First", value: "one", comment: "First comes above.\n", kind: "Kind"},
		{name: "Second", value: "two", comment: "comes beside\n", kind: "Kind"},
		{name: "Fourth", value: "two!", comment: "is a sum\n"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(constant{})); diff != "" {
		t.Errorf("constants (-want +got):\n%s", diff)
	}
}

func TestTextLosesItsMeaningInATable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want string }{
		"several lines become one":                  {prose("a\n  b"), "a b"},
		"a bar does not end the cell":               {prose("a|b"), `a\|b`},
		"a placeholder is no HTML":                  {prose("<type>"), "&lt;type&gt;"},
		"a bar in code does not end the cell":       {code("^(a|b)$"), "`^(a\\|b)$`"},
		"a comment loses the name that it repeats":  {sentence("Ready is True.", "Ready is "), "True."},
		"a comment beside becomes a sentence":       {sentence("seen", ""), "Seen."},
		"a comment of nothing but the name is none": {sentence("Ready is ", "Ready is "), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.got != c.want {
				t.Errorf("got %q, want %q", c.got, c.want)
			}
		})
	}
}
