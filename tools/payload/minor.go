package main

import (
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// kubernetesPins is the directory with a module for each pinned minor version of Kubernetes.
const kubernetesPins = "payload/kubernetes"

// defaultMinor is the minor version that is built by default. Programs that don't have to fit the API server always
// come from this version, so that all payloads share them.
const defaultMinor = "1.36"

// allMinors means every pinned minor version.
const allMinors = "all"

func pinsOf(minor string) string { return path.Join(kubernetesPins, minor) }

// minorsIn parses a list of minor versions of Kubernetes, separated by commas or spaces, and sorts it as in a
// payload: newest first. Each version must be pinned in the source tree.
func minorsIn(root, asked string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, kubernetesPins))
	if err != nil {
		return nil, fmt.Errorf("looking for the pinned minor versions: %w", err)
	}
	var pinned []string
	for _, e := range entries {
		pinned = append(pinned, e.Name())
	}
	slices.SortFunc(pinned, func(a, b string) int { return cmp.Compare(minorNumber(b), minorNumber(a)) })
	if asked == allMinors {
		return pinned, nil
	}
	words := strings.FieldsFunc(asked, func(r rune) bool { return r == ',' || r == ' ' })
	if len(words) == 0 {
		return nil, fmt.Errorf("no minor version is asked for; these are pinned: %s", strings.Join(pinned, ", "))
	}
	for _, w := range words {
		if !slices.Contains(pinned, w) {
			return nil, fmt.Errorf("minor version %q is not pinned; these are: %s", w, strings.Join(pinned, ", "))
		}
	}
	return slices.DeleteFunc(pinned, func(m string) bool { return !slices.Contains(words, m) }), nil
}

// minorNumber returns the number after the dot, such as 36 for 1.36.
func minorNumber(minor string) int {
	n, _ := strconv.Atoi(minor[strings.LastIndexByte(minor, '.')+1:])
	return n
}
