// Command krew creates the files that Krew, the package manager for plugins of kubectl, installs: it builds
// kubectl-windows for each platform, packs each binary with the licence, and writes the manifest with the SHA-256
// of each archive. `make plugin` runs it. The same source gives the same bytes on every machine.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	o := options{}
	flag.StringVar(&o.root, "root", ".", "top folder of the source")
	flag.StringVar(&o.out, "out", "out/plugin", "folder for the result, which is emptied first")
	flag.StringVar(&o.version, "version", "0.1.0", "version of the plugin")
	flag.StringVar(&o.url, "url", "", "where the archives will be downloaded from; the release if empty")
	flag.Parse()
	o.platforms = everywhere()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

// homepage is the project's URL.
const homepage = "https://github.com/windows-nodes/wmco"

// options of the command.
type options struct {
	// root is the top folder of the source, and out the folder for the result.
	root, out string
	// version of the plugin. url is the folder that users download the archives from.
	version, url string
	// platforms to build for, each as os/arch.
	platforms []string
}

// The function `everywhere` lists the platforms that administrators use.
func everywhere() []string {
	return []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64", "windows/amd64", "windows/arm64"}
}

// run writes binaries, archives and the manifest to a temporary folder. When the folder is complete, it replaces
// the old result.
func run(ctx context.Context, o options) error {
	url := cmp.Or(o.url, homepage+"/releases/download/v"+o.version)
	if !strings.HasPrefix(url, "https://") {
		return errors.New("archives must be downloaded from an https:// URL, which " + url + " is not")
	}
	licence, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return fmt.Errorf("reading the licence: %w", err)
	}
	if err = os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil { //nolint:gosec // everyone may read it
		return err
	}
	scratch, err := os.MkdirTemp(filepath.Dir(o.out), ".plugin-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	var made []platform
	for _, p := range o.platforms {
		binary, err := build(ctx, o, p, scratch)
		if err != nil {
			return fmt.Errorf("building for %s: %w", p, err)
		}
		one, err := pack(binary, url, licence)
		if err != nil {
			return fmt.Errorf("packing %s: %w", binary, err)
		}
		made = append(made, one)
	}
	if err = describe(filepath.Join(scratch, "windows.yaml"), o.version, made); err != nil {
		return err
	}
	if err = os.RemoveAll(o.out); err != nil {
		return err
	}
	return errors.Join(os.Chmod(scratch, 0o755), os.Rename(scratch, o.out)) //nolint:gosec // everyone may read it
}
