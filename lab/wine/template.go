//go:build linux

package wine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Options configure Prepare.
type Options struct {
	// CacheDir contains the template and the hosts. If empty, it is wmco-lab/wine in the user's cache directory.
	CacheDir string
	// Shared disables namespaces, even if the kernel allows them.
	Shared bool
	// Progress receives a line for each slow step. Nil discards the lines.
	Progress io.Writer
}

// Template is the prefix that hosts are copied from, and the programs that hosts need. Any number of hosts, also of
// several processes, can share it.
type Template struct {
	tools
	// prefix is the template. hosts is the directory of the copies, on the same file system.
	prefix, hosts string
	// keeper is the Linux path of the exe that keeps hosts running.
	keeper string
	// linked are the shared files of the template, as they were when the template was created.
	linked map[string]stamp
	// isolated means that hosts get their own namespaces.
	isolated bool
}

// templateRecipe is part of the name of the template. Increase it when the method make changes.
const templateRecipe = "1"

// Prepare creates everything that hosts share. The first call takes about fifteen seconds, and later calls take one
// second. Prepare removes the templates of earlier versions of this repository. If programs are missing on this
// machine, it returns a *MissingError.
func Prepare(ctx context.Context, options Options) (*Template, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	found, err := findTools()
	if err != nil {
		return nil, err
	}
	cache := options.CacheDir
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("finding the user's cache directory: %w", err)
		}
		cache = filepath.Join(user, "wmco-lab", "wine")
	}
	t := &Template{tools: found, hosts: filepath.Join(cache, "hosts"), isolated: !options.Shared && CanIsolate(ctx)}
	if err = os.MkdirAll(t.hosts, 0o700); err != nil {
		return nil, fmt.Errorf("making the cache directory: %w", err)
	}
	sweepAbandoned(t.hosts)
	key, err := t.key(ctx)
	if err != nil {
		return nil, err
	}
	t.prefix = filepath.Join(cache, key)
	release, err := lock(ctx, t.prefix+".lock")
	if err != nil {
		return nil, fmt.Errorf("waiting for the template: %w", err)
	}
	defer release()
	if _, err = os.Stat(t.prefix); errors.Is(err, fs.ErrNotExist) {
		err = t.make(ctx, options.Progress)
	}
	if err != nil {
		return nil, fmt.Errorf("making the template: %w", err)
	}
	if err = prune(cache, "template-*", t.prefix, time.Now()); err != nil {
		return nil, err
	}
	if t.keeper, err = buildKeeper(ctx, cache); err != nil {
		return nil, err
	}
	t.linked, err = stamps(t.prefix)
	return t, err
}

// Isolated reports whether each host has its own name, network and process table. Otherwise there can be only one
// host at a time, and it uses this machine's name, network and process table.
func (t *Template) Isolated() bool { return t.isolated }

// Version returns the version of Wine, such as wine-8.0 (Debian 8.0~repack-4).
func (t *Template) Version(ctx context.Context) (string, error) {
	output, err := exec.CommandContext(ctx, t.wine, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("asking Wine for its version: %w", err)
	}
	return strings.TrimSpace(string(output)), nil
}

// key is a hash of everything that the template depends on.
func (t *Template) key(ctx context.Context) (string, error) {
	hash := sha256.New()
	for _, tool := range [][]string{{t.wine, "--version"}, {t.compiler, "-dumpfullversion"}} {
		output, err := exec.CommandContext(ctx, tool[0], tool[1:]...).Output()
		if err != nil {
			return "", fmt.Errorf("asking %s for its version: %w", tool[0], err)
		}
		fmt.Fprintf(hash, "%s\n", output)
	}
	for _, n := range natives() {
		fmt.Fprintf(hash, "%v\n", n)
	}
	if err := hashSources(hash); err != nil {
		return "", err
	}
	fmt.Fprintf(hash, "%s\n%s", templateRecipe, settings)
	return "template-" + hex.EncodeToString(hash.Sum(nil))[:16], nil
}

// templateTimeout limits each step of the creation of a template. The longest step takes eight seconds on two busy
// cores.
const templateTimeout = 2 * time.Minute

// make creates the template under a temporary name and renames it when it is complete.
func (t *Template) make(ctx context.Context, progress io.Writer) (err error) {
	began := time.Now()
	fmt.Fprintf(progress, "wine: making the template of all hosts\n")
	partial, err := os.MkdirTemp(filepath.Dir(t.prefix), "partial-")
	if err != nil {
		return fmt.Errorf("creating the directory: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(partial)) }()
	defer sweep(partial)
	if err = t.runOnce(ctx, partial, t.wine, "wineboot", "--init"); err != nil {
		return err
	}
	if err = t.compile(ctx, filepath.Join(partial, "drive_c", "windows", "system32")); err != nil {
		return err
	}
	file := filepath.Join(partial, "drive_c", "settings.reg")
	if err = os.WriteFile(file, []byte(settings), 0o600); err != nil {
		return fmt.Errorf("writing the registry's settings: %w", err)
	}
	if err = t.runOnce(ctx, partial, t.wine, "regedit", "/S", `C:\settings.reg`); err != nil {
		return err
	}
	if err = t.runOnce(ctx, partial, t.server, "-k", "-w"); err != nil {
		return err
	}
	if err = errors.Join(os.Remove(file), tidy(partial)); err != nil {
		return err
	}
	if err = os.Rename(partial, t.prefix); err != nil {
		return fmt.Errorf("installing it: %w", err)
	}
	fmt.Fprintf(progress, "wine: made in %s, kept in %s\n", time.Since(began).Round(100*time.Millisecond), t.prefix)
	return nil
}

// runOnce runs a program of this machine on a prefix.
func (t *Template) runOnce(ctx context.Context, prefix string, program ...string) error {
	ctx, cancel := context.WithTimeout(ctx, templateTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = environment(prefix)
	// Wine's server and services continue to run and keep the output of the program open.
	cmd.WaitDelay = 100 * time.Millisecond
	group(cmd)
	if output, err := cmd.CombinedOutput(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		return fmt.Errorf("running %v: %w: %s", program, err, output)
	}
	return nil
}

// environment returns the complete environment of programs in a prefix.
func environment(prefix string) []string {
	return []string{
		"WINEPREFIX=" + prefix, "WINEDEBUG=-all", "WINEDLLOVERRIDES=mscoree=;mshtml=;winemenubuilder.exe=;pdh=n",
		"HOME=" + prefix, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C.UTF-8",
		// Go preempts goroutines by suspending threads, and Wine 8 doesn't always resume them. While a compiler was
		// running, 3 of 270 runs of a Go program hung forever. With this setting, 1 run of 960 did.
		"GODEBUG=asyncpreemptoff=1",
	}
}

// tidy removes everything that leads out of the prefix: drives and folders that are links to files of this machine. It
// also prevents Wine from updating copies, because an update would write shared files in place.
func tidy(prefix string) error {
	devices, err := os.ReadDir(filepath.Join(prefix, "dosdevices"))
	if err != nil {
		return fmt.Errorf("listing drives: %w", err)
	}
	for _, d := range devices {
		if d.Name() == "c:" {
			continue
		}
		if err = os.Remove(filepath.Join(prefix, "dosdevices", d.Name())); err != nil {
			return fmt.Errorf("removing drive %s: %w", d.Name(), err)
		}
	}
	err = filepath.WalkDir(filepath.Join(prefix, "drive_c", "users"),
		func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Type() != fs.ModeSymlink {
				return err
			}
			return errors.Join(os.Remove(path), os.Mkdir(path, 0o755))
		})
	if err != nil {
		return fmt.Errorf("replacing links in a user's folders: %w", err)
	}
	removeSocket(prefix)
	if err = os.Remove(filepath.Join(prefix, socketName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the name of the server's folder: %w", err)
	}
	if err = os.WriteFile(filepath.Join(prefix, ".update-timestamp"), []byte("disable\n"), 0o644); err != nil {
		return fmt.Errorf("keeping Wine from updating: %w", err)
	}
	return nil
}
