package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeModule creates a module with one main package and returns its folder.
func writeModule(t *testing.T, source string) string {
	t.Helper()
	return writeTree(t, map[string]string{
		"go.mod": "module example.com/tiny\n\ngo 1.26\n", "go.sum": "", "main.go": source,
	})
}

func TestBuildAll(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source string
		want   string // expected text in the error; empty: the build succeeds
	}{
		"programs are built under their names": {source: "package main\n\nfunc main() {}\n"},
		"a broken program is told by the compiler": {source: "package main\n\nfunc main() { nothing() }\n",
			want: "undefined: nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			module := writeTree(t, map[string]string{
				"go.mod": "module example.com/tiny\n\ngo 1.26\n", "go.sum": "",
				"one/main.go": test.source, "other/v3/main.go": "package main\n\nfunc main() {}\n",
			})
			b := &builder{module: module, out: t.TempDir(), progress: io.Discard}
			err := b.buildAll(t.Context(), []program{
				{name: "first", pkg: "example.com/tiny/one"}, {name: "second", pkg: "example.com/tiny/other/v3"},
			}, "-s -w")
			left, readErr := os.ReadDir(b.out)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if test.want == "" {
				if err != nil || len(left) != 2 || left[0].Name() != filepath.Base(b.path("first")) ||
					left[1].Name() != filepath.Base(b.path("second")) {
					t.Errorf("error %v, files %v", err, left)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), b.module) {
				t.Errorf("error %v, want %q and the folder", err, test.want)
			}
			if len(left) != 0 {
				t.Errorf("incomplete files are left in the cache: %v", left)
			}
		})
	}
}

func TestAProgramNamedByItsFolderIsBuilt(t *testing.T) {
	t.Parallel()
	b := &builder{module: writeModule(t, "package main\n\nfunc main() {}\n"), out: t.TempDir(), progress: io.Discard}
	if err := b.buildAll(t.Context(), []program{{name: "named", pkg: "."}}, "-s -w"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(b.path("named")); err != nil {
		t.Error(err)
	}
}

func TestACancelledBuildEndsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	b := &builder{module: writeModule(t, "package main\n\nfunc main() {}\n"), out: t.TempDir(), progress: io.Discard}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.buildAll(ctx, []program{{name: "tiny", pkg: "example.com/tiny"}}, "")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(b.out); err != nil || len(left) != 0 {
		t.Errorf("incomplete files are left in the cache: %v, %v", left, err)
	}
}

func TestTheCacheKeyFollowsPinsAndSources(t *testing.T) {
	t.Parallel()
	b := &builder{module: writeModule(t, "package main\n\nfunc main() {}\n")}
	key := func() string {
		key, err := b.key(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(b.module, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := key()
	if again := key(); again != first {
		t.Errorf("the key changed although no file changed: %s, %s", first, again)
	}
	write("go.sum")
	pinned := key()
	if pinned == first {
		t.Errorf("a change of go.sum did not change the key: %s", first)
	}
	write("main_test.go")
	if changed := key(); changed != pinned {
		t.Errorf("a change of a test changed the key: %s, %s", pinned, changed)
	}
	if err := os.Mkdir(filepath.Join(b.module, "part"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(filepath.Join("part", "part.go"))
	if changed := key(); changed == pinned {
		t.Errorf("a change of a package's source did not change the key: %s", pinned)
	}
}

func TestLinkerFlagsCarryTheVersion(t *testing.T) {
	t.Parallel()
	date := time.Date(2026, 7, 22, 18, 7, 38, 0, time.UTC)
	got, err := linkerFlagsFor("v1.36.3", date)
	const variable = " -X k8s.io/component-base/version."
	want := "-s -w" + variable + "gitVersion=v1.36.3" + variable + "gitMajor=1" + variable + "gitMinor=36" +
		variable + "gitTreeState=clean" + variable + "buildDate=2026-07-22T18:07:38Z"
	if err != nil || got != want {
		t.Errorf("got %q, %v\nwant %q", got, err, want)
	}
	if got, err := linkerFlagsFor("latest", date); err == nil {
		t.Errorf("a version without numbers gave %q", got)
	}
}
