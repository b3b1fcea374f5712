package cluster

import (
	"os"
	"path/filepath"
	"testing"
)

func TestModuleRoot(t *testing.T) {
	t.Parallel()
	top := writeTree(t, map[string]string{
		"wmco/go.mod": "// a comment\nmodule github.com/windows-nodes/wmco // and " +
			"another\n\ngo 1.26\n",
		"wmco/cmd/winlab/x.go":            "",
		"wmco/lab/controlplane/go.mod":    "module github.com/windows-nodes/wmco/lab/controlplane\n",
		"elsewhere/go.mod":                "module example.com/other\n",
		"elsewhere/deep/module-less/x.go": "",
	})
	for name, test := range map[string]struct {
		from, want string // relative to top; an empty want means an error
	}{
		"the root itself":                   {from: "wmco", want: "wmco"},
		"a folder below it":                 {from: "wmco/cmd/winlab", want: "wmco"},
		"a nested module is passed over":    {from: "wmco/lab/controlplane", want: "wmco"},
		"another module's folder is no one": {from: "elsewhere/deep/module-less"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := moduleRootAbove(filepath.Join(top, filepath.FromSlash(test.from)))
			if (err == nil) != (test.want != "") {
				t.Fatalf("got %q, %v", got, err)
			}
			if err == nil && got != filepath.Join(top, test.want) {
				t.Errorf("got %s, want %s", got, test.want)
			}
		})
	}
}

func TestModuleRootOfThisRepository(t *testing.T) {
	t.Parallel()
	root, err := ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "lab", "controlplane", "go.mod")); err != nil {
		t.Error(err)
	}
}
