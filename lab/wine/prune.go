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
	// keptTemplates is the number of templates to keep. Two branches of this repository may need different templates. A
	// template has 700 MB.
	keptTemplates = 2
	// unusedFor is how long a template must be unused before it is removed. During this time, another process may
	// still create hosts from it.
	unusedFor = 2 * time.Hour
)

// prune marks the directory `used` as in use. It removes incomplete directories that are unused for the time unusedFor.
// It does the same with directories that match the pattern, but keeps the keptTemplates most recently used.
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

// directory is a directory with the time of its last use.
type directory struct {
	path string
	used time.Time
}

// oldestLast lists the directories of a pattern, the most recently used first.
func oldestLast(pattern string) ([]directory, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", pattern, err)
	}
	var all []directory
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.IsDir() { // skip removed directories
			all = append(all, directory{path, info.ModTime()})
		}
	}
	slices.SortFunc(all, func(a, b directory) int { return b.used.Compare(a.used) })
	return all, nil
}
