package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
)

type options struct {
	root         string
	minor, write bool
}

// bump prints newer versions of a go.mod's direct requirements. With the option write, it also updates them.
func (o options) bump(ctx context.Context, out io.Writer, file string) error {
	directory := filepath.Join(o.root, filepath.Dir(file))
	data, err := os.ReadFile(filepath.Join(o.root, file))
	if err != nil {
		return err
	}
	parsed, err := modfile.Parse(file, data, nil)
	if err != nil {
		return err
	}
	replaced := map[string]bool{}
	for _, r := range parsed.Replace {
		replaced[r.Old.Path] = true
	}
	for _, r := range parsed.Require {
		if r.Indirect || replaced[r.Mod.Path] {
			continue
		}
		newest, err := o.newest(ctx, directory, r.Mod.Path, r.Mod.Version)
		if err != nil {
			return err
		}
		if newest == r.Mod.Version {
			continue
		}
		licence, err := licences(ctx, directory, r.Mod.Path, r.Mod.Version, newest)
		if err != nil { // for example, the version needs a newer Go
			_, _ = fmt.Fprintf(out, "%s: %s %s → %s can't be taken: %s\n", file, r.Mod.Path, r.Mod.Version, newest, reason(err))
			continue
		}
		if o.write {
			_, err = run(ctx, directory, "go", "get", r.Mod.Path+"@"+newest)
		}
		if err != nil {
			_, _ = fmt.Fprintf(out, "%s: %s %s → %s can't be taken: %v\n", file, r.Mod.Path, r.Mod.Version, newest, err)
			continue
		}
		_, _ = fmt.Fprintf(out, "%s: %s %s → %s, %s\n", file, r.Mod.Path, r.Mod.Version, newest, licence)
	}
	return nil
}

// newest returns the highest release of a module within the pinned minor version. With the option minor, it looks
// within the pinned major version. If there is no higher release, it returns the pinned version.
func (o options) newest(ctx context.Context, directory, path, pinned string) (string, error) {
	text, err := run(ctx, directory, "go", "list", "-mod=mod", "-m", "-versions", "-json", path)
	if err != nil {
		return "", err
	}
	var listed struct{ Versions []string }
	if err = json.Unmarshal([]byte(text), &listed); err != nil {
		return "", err
	}
	newest := pinned
	for _, version := range listed.Versions {
		if semver.Prerelease(version) == "" && semver.Compare(version, newest) > 0 &&
			(o.minor || semver.MajorMinor(version) == semver.MajorMinor(pinned)) {
			newest = version
		}
	}
	return newest, nil
}

// reason returns the go command's message from an error in JSON, or the whole error.
func reason(err error) string {
	for line := range strings.Lines(err.Error()) {
		if said, found := strings.CutPrefix(strings.TrimSpace(line), `"Error": `); found {
			return strings.Trim(said, `",`)
		}
	}
	return err.Error()
}

// licences reports whether a module's licence changes in a later version.
func licences(ctx context.Context, directory, path, from, to string) (string, error) {
	before, err := licence(ctx, directory, path+"@"+from)
	if err != nil {
		return "", err
	}
	after, err := licence(ctx, directory, path+"@"+to)
	switch {
	case err != nil:
		return "", err
	case after == nil:
		return "WITHOUT A LICENCE", nil
	case sha256.Sum256(before) == sha256.Sum256(after):
		return "the same licence", nil
	}
	first, _, _ := strings.Cut(strings.TrimSpace(string(after)), "\n")
	return "ANOTHER LICENCE: " + first, nil
}

// licence reads the licence of a module. It returns nil if there is none.
func licence(ctx context.Context, directory, module string) ([]byte, error) {
	text, err := run(ctx, directory, "go", "mod", "download", "-json", module)
	if err != nil {
		return nil, err
	}
	var downloaded struct{ Dir string }
	if err = json.Unmarshal([]byte(text), &downloaded); err != nil {
		return nil, err
	}
	var first error
	for _, name := range []string{"LICENSE", "LICENSE.txt", "LICENSE.md", "LICENCE", "COPYING"} {
		data, err := os.ReadFile(filepath.Join(downloaded.Dir, name))
		if err == nil {
			return data, nil
		}
		if !os.IsNotExist(err) {
			first = cmp.Or(first, err)
		}
	}
	return nil, first
}
