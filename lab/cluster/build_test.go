package cluster

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writeModule makes a module with one main package and returns its folder.
func writeModule(t *testing.T, source string) string {
	t.Helper()
	return writeTree(t, map[string]string{
		"go.mod": "module example.com/tiny\n\ngo 1.26\n", "go.sum": "", "main.go": source,
	})
}

func TestBuildOne(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		source string
		want   string // in the error; empty: it builds
	}{
		"a program is built under its name": {source: "package main\n\nfunc main() {}\n"},
		"a broken program is told by the compiler": {source: "package main\n\nfunc main() { nothing() }\n",
			want: "undefined: nothing"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var progress bytes.Buffer
			b := &builder{module: writeModule(t, test.source), out: t.TempDir(), progress: &progress}
			err := b.buildOne(t.Context(), program{name: "tiny", pkg: "example.com/tiny"}, "-s -w", "tiny (1 of 1)")
			left, readErr := os.ReadDir(b.out)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if !strings.Contains(progress.String(), "lab: building tiny (1 of 1)\n") {
				t.Errorf("progress: %q", progress.String())
			}
			if test.want == "" {
				if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(b.path("tiny")) {
					t.Errorf("error %v, files %v", err, left)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), b.module) {
				t.Errorf("error %v, want %q and the folder", err, test.want)
			}
			if len(left) != 0 {
				t.Errorf("left in the cache: %v", left)
			}
		})
	}
}

func TestACancelledBuildEndsAndLeavesNothing(t *testing.T) {
	t.Parallel()
	b := &builder{module: writeModule(t, "package main\n\nfunc main() {}\n"), out: t.TempDir(),
		progress: &bytes.Buffer{}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := b.buildOne(ctx, program{name: "tiny", pkg: "example.com/tiny"}, "", "tiny")
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	if left, err := os.ReadDir(b.out); err != nil || len(left) != 0 {
		t.Errorf("left in the cache: %v, %v", left, err)
	}
}

func TestTheCacheKeyFollowsThePins(t *testing.T) {
	t.Parallel()
	b := &builder{module: writeModule(t, "package main\n\nfunc main() {}\n")}
	key := func() string {
		key, err := b.key(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return key
	}
	first := key()
	if again := key(); again != first {
		t.Errorf("the key changed by itself: %s, %s", first, again)
	}
	if err := os.WriteFile(filepath.Join(b.module, "go.sum"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed := key(); changed == first {
		t.Errorf("the key did not follow go.sum: %s", first)
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
