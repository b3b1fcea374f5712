package main

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/CycloneDX/cyclonedx-go"

	"github.com/windows-nodes/wmco/internal/payload"
)

// part is one program in an image.
type part struct {
	// name and version of the program, and the path of its file on this machine.
	name, version, path string
}

// payloadParts lists the programs of a payload directory.
func payloadParts(directory string, manifest payload.Manifest) []part {
	parts := make([]part, 0, len(manifest.Files))
	for _, f := range manifest.Files {
		parts = append(parts, part{f.Name, f.Version, filepath.Join(directory, "sha256", f.Digest)})
	}
	return parts
}

// list creates the CycloneDX list of an image's parts. It reads a program's modules from the build information of
// the Go linker, also for Windows programs. A program without build information is listed by its digest alone. The
// list contains no time and no random serial number: the same parts give the same list.
func list(image, version string, parts []part) ([]byte, error) {
	bom := cyclonedx.NewBOM()
	bom.Metadata = &cyclonedx.Metadata{Component: &cyclonedx.Component{
		BOMRef: image, Type: cyclonedx.ComponentTypeContainer, Name: image, Version: version}}
	modules := map[string]cyclonedx.Component{}
	var programs []cyclonedx.Component
	dependencies := []cyclonedx.Dependency{}
	var names []string
	for _, p := range parts {
		component, made, err := describe(p)
		if err != nil {
			return nil, fmt.Errorf("describing %s: %w", p.name, err)
		}
		programs, names = append(programs, component), append(names, component.BOMRef)
		needs := slices.Sorted(maps.Keys(made))
		dependencies = append(dependencies, cyclonedx.Dependency{Ref: component.BOMRef, Dependencies: &needs})
		maps.Copy(modules, made)
	}
	dependencies = append(dependencies, cyclonedx.Dependency{Ref: image, Dependencies: &names})
	for _, key := range slices.Sorted(maps.Keys(modules)) {
		programs = append(programs, modules[key])
	}
	bom.Components, bom.Dependencies = &programs, &dependencies
	var out bytes.Buffer
	encoder := cyclonedx.NewBOMEncoder(&out, cyclonedx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	if err := encoder.Encode(bom); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// describe returns the component of one program, and its modules by package URL.
func describe(p part) (cyclonedx.Component, map[string]cyclonedx.Component, error) {
	digest, err := digestOf(p.path)
	if err != nil {
		return cyclonedx.Component{}, nil, err
	}
	program := cyclonedx.Component{
		BOMRef: p.name + "@" + digest, Type: cyclonedx.ComponentTypeApplication, Name: p.name, Version: p.version,
		Hashes: &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: digest}},
	}
	modules := map[string]cyclonedx.Component{}
	info, err := buildinfo.ReadFile(p.path)
	if err != nil {
		// This is no Go program, or its build information was stripped. So only its digest is known.
		return program, modules, nil //nolint:nilerr // a program without build information is also listed
	}
	add := func(name, version string) {
		url := "pkg:golang/" + name + "@" + version
		modules[url] = cyclonedx.Component{
			BOMRef: url, Type: cyclonedx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: url}
	}
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"))
	for _, m := range append([]*debug.Module{&info.Main}, info.Deps...) {
		for m.Replace != nil {
			m = m.Replace
		}
		if m.Path != "" && m.Version != "" && m.Version != "(devel)" && !strings.HasPrefix(m.Path, ".") {
			add(m.Path, m.Version)
		}
	}
	return program, modules, nil
}

func digestOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", fmt.Errorf("reading %s: %w", path, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
