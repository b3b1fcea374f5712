//go:build linux

package wine

import (
	"context"
	"embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// sources are the C sources of the files that a prefix needs in addition to the files of Wine.
//
//go:embed native/*.c native/*.h
var sources embed.FS

// native is one file of system32 that is compiled from C.
type native struct {
	file           string
	sources, flags []string
}

func natives() []native {
	return []native{
		{"bcryptprimitives.dll",
			[]string{"bcryptprimitives.c", "mend.c", "link.c", "socket.c", "service.c", "security.c"},
			[]string{"-shared", "-ladvapi32", "-lntdll"}},
		{"computenetwork.dll", []string{"hns.c"}, []string{"-shared", "-lole32"}},
		{"pdh.dll", []string{"pdh.c"}, []string{"-shared"}},
		{"vmcompute.dll", []string{"hns.c"}, []string{"-shared", "-lole32"}},
		{"WindowsPowerShell/v1.0/powershell.exe", []string{"powershell.c"}, nil},
	}
}

// compile compiles all native files into the directory system32 of a prefix.
func (t tools) compile(ctx context.Context, system32 string) error {
	scratch, err := os.MkdirTemp("", "wmco-wine-")
	if err != nil {
		return fmt.Errorf("making a directory for C sources: %w", err)
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	if err = writeSources(scratch); err != nil {
		return err
	}
	for _, n := range natives() {
		target := filepath.Join(system32, n.file)
		if err = os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
			return fmt.Errorf("making the directory of %s: %w", n.file, err)
		}
		// Wine's own file can be a link to a file that other prefixes use.
		if err = os.Remove(target); err != nil && !os.IsNotExist(err) {
			return fmt.Errorf("replacing %s: %w", n.file, err)
		}
		arguments := append([]string{"-O2", "-Wall", "-Werror", "-s", "-o", target}, n.sources...)
		cmd := exec.CommandContext(ctx, t.compiler, append(arguments, n.flags...)...)
		cmd.Dir = scratch
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("compiling %s: %w: %s", n.file, err, output)
		}
	}
	return nil
}

// eachSource calls `do` with the name and the content of each C source.
func eachSource(do func(name string, content []byte) error) error {
	files, err := sources.ReadDir("native")
	if err != nil {
		return fmt.Errorf("listing C sources: %w", err)
	}
	for _, f := range files {
		content, err := sources.ReadFile("native/" + f.Name())
		if err != nil {
			return fmt.Errorf("reading %s: %w", f.Name(), err)
		}
		if err = do(f.Name(), content); err != nil {
			return fmt.Errorf("writing %s: %w", f.Name(), err)
		}
	}
	return nil
}

// hashSources adds the content of all sources to a hash.
func hashSources(hash io.Writer) error {
	return eachSource(func(name string, content []byte) error {
		_, err := fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
		return err
	})
}

func writeSources(dir string) error {
	return eachSource(func(name string, content []byte) error {
		return os.WriteFile(filepath.Join(dir, name), content, 0o600)
	})
}
