package main

import (
	"debug/pe"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/windows-nodes/wmco/internal/payload"
)

// versionSuffix is the suffix of a text file with the version of a supplied executable. The file is in the same
// directory as the executable.
const versionSuffix = ".version"

// suppliedParts lists the parts in a directory by name. It returns an error for an executable that is no part,
// because its name is probably misspelt. If dir is empty, there are no supplied parts.
func suppliedParts(dir string) (map[string]bool, error) {
	names := map[string]bool{}
	if dir == "" {
		return names, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing the supplied programs: %w", err)
	}
	for _, e := range entries {
		if !strings.EqualFold(filepath.Ext(e.Name()), ".exe") {
			continue
		}
		if _, known := payload.PartNamed(e.Name()); !known {
			return nil, fmt.Errorf("listing the supplied programs: %s is not the name of a part", e.Name())
		}
		names[e.Name()] = true
	}
	return names, nil
}

// suppliedVersion reads the version of a supplied executable from its text file.
func suppliedVersion(path string) (string, error) {
	text, err := os.ReadFile(path + versionSuffix)
	if errors.Is(err, os.ErrNotExist) {
		return "unknown", nil
	}
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(text)), nil
}

// checkExecutable returns an error if a file is no program for 64-bit Windows on amd64.
func checkExecutable(path string) (err error) {
	f, err := pe.Open(path)
	if err != nil {
		return fmt.Errorf("reading it as a Windows program: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if f.Machine != pe.IMAGE_FILE_MACHINE_AMD64 {
		return fmt.Errorf("it is for machine type %#x and not for amd64", f.Machine)
	}
	if f.Characteristics&pe.IMAGE_FILE_EXECUTABLE_IMAGE == 0 || f.Characteristics&pe.IMAGE_FILE_DLL != 0 {
		return errors.New("it is not a program")
	}
	return nil
}
