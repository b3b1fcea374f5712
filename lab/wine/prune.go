//go:build linux

package wine

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// keptTemplates is how many templates stay: two branches of this repository may want one each.
	// One has 700 MB.
	keptTemplates = 2
	// unusedFor is how long nobody must have prepared with a template for it to be taken away:
	// hosts may still be made of it.
	unusedFor = 2 * time.Hour
)

// prune notes that a template is in use, or what else matches the pattern of names, and removes
// those of them that were used last but have not been for long, with what attempts to make one left
// behind.
func prune(cache, pattern, used string, now time.Time) error {
	if err := os.Chtimes(used, now, now); err != nil {
		return fmt.Errorf("noting that %s is in use: %w", used, err)
	}
	templates, err := oldestLast(filepath.Join(cache, pattern))
	if err != nil {
		return err
	}
	partial, err := oldestLast(filepath.Join(cache, "partial-*"))
	if err != nil {
		return err
	}
	for _, old := range append(templates[min(keptTemplates, len(templates)):], partial...) {
		if now.Sub(old.used) > unusedFor {
			err = errors.Join(err, os.RemoveAll(old.path), os.RemoveAll(old.path+".lock"))
		}
	}
	if err != nil {
		return fmt.Errorf("removing what is no longer used of %s: %w", pattern, err)
	}
	return nil
}

// directory is one with the time of its last use.
type directory struct {
	path string
	used time.Time
}

// oldestLast lists directories of a pattern, the one that was used last first.
func oldestLast(pattern string) ([]directory, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", pattern, err)
	}
	var all []directory
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() { // one that is gone by now needs no removal
			all = append(all, directory{path, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b directory) int { return b.used.Compare(a.used) })
	return all, nil
}
