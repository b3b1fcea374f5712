//go:build linux

package wine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestOldTemplatesAreRemoved(t *testing.T) {
	t.Parallel()
	cache, now := t.TempDir(), time.Now()
	for name, age := range map[string]time.Duration{
		"template-used": 40 * time.Hour, "template-recent": time.Hour, "template-old": 30 * time.Hour,
		"template-third": 90 * time.Minute,
		"partial-dead":   3 * time.Hour, "partial-alive": time.Minute, "hosts": 50 * time.Hour,
	} {
		path := filepath.Join(cache, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".lock", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, now.Add(-age), now.Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := prune(cache, "template-*", filepath.Join(cache, "template-used"), now); err != nil {
			t.Fatal(err)
		}
	}
	left, err := filepath.Glob(filepath.Join(cache, "*[a-z]"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, path := range left {
		if filepath.Ext(path) == "" {
			names = append(names, filepath.Base(path))
		}
	}
	if want := []string{"hosts", "partial-alive", "template-recent", "template-third",
		"template-used"}; !slices.Equal(names, want) {
		t.Errorf("the remaining directories are %q, want %q", names, want)
	}
	if _, err = os.Stat(filepath.Join(cache, "template-old.lock")); !os.IsNotExist(err) {
		t.Errorf("the lock of a removed directory was not removed: %v", err)
	}
}
