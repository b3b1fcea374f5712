package cluster

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// modulePath is the module whose folder ModuleRoot searches.
const modulePath = "github.com/windows-nodes/wmco"

// ModuleRoot returns the top folder of this repository: the nearest folder, from the working directory upwards, whose
// go.mod declares the wmco module. It skips nested modules. It returns an error if there is no such folder, for example
// for a binary outside the source tree.
func ModuleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the module root: %w", err)
	}
	return moduleRootAbove(start)
}

func moduleRootAbove(start string) (string, error) {
	for dir := filepath.Clean(start); ; dir = filepath.Dir(dir) {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("finding the module root: %w", err)
		}
		if declaredModule(content) == modulePath {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("finding the module root: no go.mod of %s in %s or above it; "+
				"run from inside the source tree", modulePath, start)
		}
	}
}

// declaredModule returns the path in the module line of a go.mod, or "".
func declaredModule(gomod []byte) string {
	lines := bufio.NewScanner(bytes.NewReader(gomod))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "module" {
			return strings.Trim(fields[1], `"`)
		}
	}
	return ""
}
