package main

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
)

// noticesName is the file in the payload directory that lists the modules in the executables, with their licenses.
const noticesName = "NOTICES.txt"

// notices collects the module versions that are linked into executables.
type notices struct {
	linked []linked
}

// linked is one module in one executable.
type linked struct {
	// Module is "path@version", after replacement.
	Module string
	// Path is the module's path in the go.mod of Dir. Dir is a directory of the source tree.
	Path, Dir string
	// Executable is the part that contains the module.
	Executable string
}

// note records the modules in an executable.
func (n *notices) note(c component, exe string) error {
	info, err := buildinfo.ReadFile(exe)
	if err != nil {
		return fmt.Errorf("reading which modules are in it: %w", err)
	}
	modules := info.Deps
	if c.Module != "" {
		modules = append(modules, &info.Main)
	}
	for _, m := range modules {
		n.linked = append(n.linked, linked{Module: effective(m), Path: m.Path, Dir: c.Dir, Executable: c.Name})
	}
	return nil
}

// The function `effective` returns a module as "path@version", after its replacement.
func effective(m *debug.Module) string {
	for m.Replace != nil {
		m = m.Replace
	}
	return m.Path + "@" + m.Version
}

// holder holds the executables that contain a module, and the module's license texts.
type holder struct {
	executables []string
	texts       []string
}

// writeNotices writes the list of modules, and each license text once.
func (w *work) writeNotices(ctx context.Context) error {
	holders, err := w.holders(ctx)
	if err != nil {
		return err
	}
	var out strings.Builder
	out.WriteString("Software in the executables of this payload, and its licenses. Executables that were supplied " +
		"are not covered.\n\n")
	users := map[string][]string{}
	for _, module := range slices.Sorted(maps.Keys(holders)) {
		h := holders[module]
		out.WriteString(module + "\n    in " + strings.Join(h.executables, ", ") + "\n")
		if len(h.texts) == 0 {
			out.WriteString("    no license file in the module\n")
		}
		for _, text := range h.texts {
			users[text] = append(users[text], module)
		}
	}
	byFirstUser := func(a, b string) int { return strings.Compare(users[a][0]+a, users[b][0]+b) }
	for _, text := range slices.SortedFunc(maps.Keys(users), byFirstUser) {
		out.WriteString("\n" + strings.Repeat("=", 80) + "\n" + strings.Join(users[text], "\n") + "\n\n" + text + "\n")
	}
	if err = os.WriteFile(filepath.Join(w.Out, noticesName), []byte(out.String()), 0o644); err != nil {
		return fmt.Errorf("writing the notices: %w", err)
	}
	return nil
}

// holders groups the linked modules by path@version, and reads their license texts.
func (w *work) holders(ctx context.Context) (map[string]*holder, error) {
	holders, paths := map[string]*holder{}, map[string][]string{}
	for _, l := range w.notices.linked {
		if holders[l.Module] == nil {
			holders[l.Module] = &holder{}
			paths[l.Dir] = append(paths[l.Dir], l.Path)
		}
		if h := holders[l.Module]; !slices.Contains(h.executables, l.Executable) {
			h.executables = append(h.executables, l.Executable)
		}
	}
	sources := map[string]map[string]string{}
	for dir, wanted := range paths {
		var err error
		if sources[dir], err = w.tools.sourceOf(ctx, dir, wanted); err != nil {
			return nil, err
		}
	}
	for _, l := range w.notices.linked {
		source, found := sources[l.Dir][l.Path]
		if h := holders[l.Module]; found && h.texts == nil {
			var err error
			if h.texts, err = licenseTexts(source); err != nil {
				return nil, fmt.Errorf("reading the licenses of %s: %w", l.Module, err)
			}
		}
	}
	if len(holders) == 0 {
		return holders, nil // nothing was built
	}
	return holders, w.addStandardLibrary(ctx, holders)
}

// addStandardLibrary adds Go's standard library, which is in every Go program.
func (w *work) addStandardLibrary(ctx context.Context, holders map[string]*holder) error {
	root, version, err := w.tools.standardLibrary(ctx)
	if err != nil {
		return err
	}
	texts, err := licenseTexts(root)
	if err != nil {
		return fmt.Errorf("reading the license of the standard library: %w", err)
	}
	holders["Go standard library@"+version] = &holder{executables: []string{"everything that was built"}, texts: texts}
	return nil
}

// licenseTexts reads the license files in the top directory of a module.
func licenseTexts(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var texts []string
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		if e.IsDir() || !slices.ContainsFunc([]string{"LICENSE", "LICENCE", "COPYING", "NOTICE", "COPYRIGHT"},
			func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		texts = append(texts, strings.TrimSpace(strings.ReplaceAll(string(text), "\r\n", "\n")))
	}
	return texts, nil
}
