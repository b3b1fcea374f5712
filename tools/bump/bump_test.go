package main

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const module = "example.com/part"

// proxy creates a module proxy in a directory, with versions of one module and their licences. It configures the go
// command to use only this proxy.
func proxy(t *testing.T, licences map[string]string) {
	t.Helper()
	dir := t.TempDir()
	versions := filepath.Join(dir, module, "@v")
	put := func(name string, data []byte) {
		t.Helper()
		if err := os.MkdirAll(versions, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(versions, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	list := ""
	for version, licence := range licences {
		list += version + "\n"
		put(version+".info", []byte(`{"Version":"`+version+`"}`))
		put(version+".mod", []byte("module "+module+"\n"))
		var packed bytes.Buffer
		z := zip.NewWriter(&packed)
		for name, text := range map[string]string{"go.mod": "module " + module + "\n", "part.go": "package part\n",
			"LICENSE": licence} {
			w, err := z.Create(module + "@" + version + "/" + name)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = w.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		put(version+".zip", packed.Bytes())
	}
	put("list", []byte(list))
	t.Setenv("GOPROXY", "file://"+dir)
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
}

// repository creates a repository with one go.mod that requires the module.
func repository(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":  "module example.com/whole\n\ngo 1.26\n\nrequire " + module + " " + version + "\n",
		"main.go": "package main\n\nimport _ \"" + module + "\"\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestNewerVersionsAreShownAndTakenOnRequest(t *testing.T) {
	proxy(t, map[string]string{"v1.2.3": "MIT", "v1.2.4": "MIT", "v1.2.5-rc.1": "MIT", "v1.3.0": "Business Source"})
	for name, c := range map[string]struct {
		o     options
		shows string
		pins  string
	}{
		"the newest patch":           {options{}, "v1.2.3 → v1.2.4, the same licence", "v1.2.3"},
		"the newest patch, taken":    {options{write: true}, "v1.2.3 → v1.2.4, the same licence", "v1.2.4"},
		"the newest version, taken":  {options{minor: true, write: true}, "v1.2.3 → v1.3.0, ANOTHER LICENCE: Business Source", "v1.3.0"},
		"the newest version, looked": {options{minor: true}, "v1.2.3 → v1.3.0, ANOTHER LICENCE: Business Source", "v1.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			c.o.root = repository(t, "v1.2.3")
			var out bytes.Buffer
			if err := c.o.bump(t.Context(), &out, "go.mod"); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(out.String(), c.shows) {
				t.Errorf("the output is %s", out.String())
			}
			data, err := os.ReadFile(filepath.Join(c.o.root, "go.mod"))
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(data), module+" "+c.pins+"\n") {
				t.Errorf("pinned:\n%s", data)
			}
		})
	}
}

func TestAVersionThatNeedsANewerGoIsNotTaken(t *testing.T) {
	proxy(t, map[string]string{"v1.2.3": "MIT", "v1.2.4": "MIT"})
	mod := filepath.Join(strings.TrimPrefix(os.Getenv("GOPROXY"), "file://"), module, "@v", "v1.2.4.mod")
	if err := os.WriteFile(mod, []byte("module "+module+"\n\ngo 1.99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GOTOOLCHAIN", "local")
	var out bytes.Buffer
	o := options{root: repository(t, "v1.2.3"), write: true}
	if err := o.bump(t.Context(), &out, "go.mod"); err != nil || !strings.Contains(out.String(), "can't be taken: ") ||
		!strings.Contains(out.String(), "1.99") {
		t.Errorf("%v: %s", err, out.String())
	}
}

func TestTheNewestVersionIsNotShown(t *testing.T) {
	proxy(t, map[string]string{"v1.2.3": "MIT"})
	var out bytes.Buffer
	o := options{root: repository(t, "v1.2.3"), minor: true, write: true}
	if err := o.bump(t.Context(), &out, "go.mod"); err != nil || out.Len() > 0 {
		t.Errorf("%v: %s", err, out.String())
	}
}
