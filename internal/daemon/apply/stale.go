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

// removeStale deletes unwanted entries in containerd's folder of registries. If a folder matches an image's registry,
// containerd uses this folder instead of the default folder, even if the matching folder is empty. removeStale keeps
// folders that contain files in `want` or in `ours`. Separate steps delete our unwanted files.
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
