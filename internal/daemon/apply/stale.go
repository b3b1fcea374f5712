package apply

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// removeStale deletes unwanted entries in the folder of registries. containerd uses the first folder that
// matches an image's registry, even an empty one, before the default folder. Folders with our own files are
// left to the steps that delete those files.
func removeStale(files winos.Files, want []contract.File, ours []string) *contract.Problem {
	there, err := files.List(contract.DirRegistries)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return FileProblem(fmt.Errorf("listing %s: %w", contract.DirRegistries, err))
	}
	paths := slices.Clone(ours)
	for _, f := range want {
		paths = append(paths, f.Path)
	}
	kept := map[string]bool{}
	for _, path := range paths {
		if contract.Within(contract.DirRegistries, path) {
			name, _, _ := strings.Cut(path[len(contract.DirRegistries)+1:], `\`)
			kept[strings.ToLower(name)] = true
		}
	}
	for _, entry := range there {
		if kept[strings.ToLower(entry.Name)] {
			continue
		}
		if err = files.RemoveAll(contract.DirRegistries + `\` + entry.Name); err != nil {
			return FileProblem(fmt.Errorf("removing a folder that hides a rule from containerd: %w", err))
		}
	}
	return nil
}
