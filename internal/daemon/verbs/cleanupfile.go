package verbs

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apply"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// files removes the files and directories that the daemon created. It removes the state file last, and keeps it if
// something could not be removed, because the next cleanup needs it.
func (c *cleaning) files(context.Context) {
	for _, path := range slices.Concat(c.state.Files, c.state.Aside) {
		if !contract.Within(contract.DirK, path) {
			c.remove("file", path)
		}
	}
	c.kubeletKeys()
	if c.state.Directories.Has(state.DirCNIState) {
		c.removeAll(state.DirCNIState)
	} else {
		kept, err := apply.ReleaseAddresses(c.host.Files)
		if err != nil {
			c.left("releasing addresses: %w", err)
		}
		for _, path := range kept {
			c.kept(path)
		}
	}
	c.directories()
	c.root()
}

// layers is the directory where containerd's snapshotter for Windows stores the file systems of containers.
const layers = contract.DirContainerdData + `\root\io.containerd.snapshotter.v1.windows\snapshots`

// data removes pods' volumes, images and containers' file systems, because they may contain secrets. Exception: data
// keeps a directory that existed before the join, or whose origin is unknown because the state file is lost. If a file
// in a directory is in use or protected, the answer lists the directory in Kept, and the cleanup doesn't fail.
func (c *cleaning) data(ctx context.Context) {
	for _, dir := range []string{contract.DirKubelet, contract.DirContainerdData} {
		if there, err := winos.Exists(c.host.Files, dir); !c.state.Directories.Has(dir) || err == nil && !there {
			continue
		}
		if c.replaceable(dir) {
			continue
		}
		if dir == contract.DirContainerdData {
			c.layers(ctx)
		}
		if err := c.clear(dir); err != nil {
			c.answer.RebootAdvised = c.answer.RebootAdvised || errors.Is(err, winos.ErrInUse)
			c.kept(dir)
			c.log.Info("a file in the directory is in use or protected", "path", dir, "detail", err.Error())
			continue
		}
		c.removed("path", dir)
	}
}

func (c *cleaning) layers(ctx context.Context) {
	entries, err := c.host.Files.List(layers)
	if err != nil {
		return // there are no layers, or the same error occurs in c.clear
	}
	for _, e := range entries {
		if err = c.host.Programs.RemoveLayer(ctx, layers+`\`+e.Name); err != nil {
			c.log.Info("a layer can't be removed", "layer", e.Name, "detail", err.Error())
		}
	}
}

// kubeletKeys removes kubelet's keys and certificates, but keeps a directory that existed before the join.
func (c *cleaning) kubeletKeys() {
	if c.state.Directories.Has(contract.DirKubeletPKI) {
		c.removeAll(contract.DirKubeletPKI)
		return
	}
	if c.state.NodeName == "" && !c.lost {
		return // the daemon never ran a kubelet on this host
	}
	entries, err := c.host.Files.List(contract.DirKubeletPKI)
	if err != nil {
		return // the directory does not exist
	}
	for _, e := range entries {
		name := strings.ToLower(e.Name)
		if strings.HasPrefix(name, "kubelet-client-") || strings.HasPrefix(name, "kubelet-server-") {
			c.remove("file", contract.DirKubeletPKI+`\`+e.Name)
		}
	}
}

// directories removes the empty directories outside C:\k that the daemon created, the deepest first. Directories with
// logs or with other programs' files stay.
func (c *cleaning) directories() {
	for _, dir := range slices.Backward(c.state.Directories) {
		if strings.EqualFold(dir, contract.DirK) || contract.Within(contract.DirK, dir) {
			continue
		}
		problem, err := state.UntrustedAbove(c.host.Files, dir)
		if problem != nil || err != nil {
			continue
		}
		entries, err := c.host.Files.List(dir)
		if err == nil && len(entries) == 0 {
			c.remove("directory", dir)
		}
	}
}

// root empties C:\k and removes it if the daemon created it.
func (c *cleaning) root() {
	entries, err := c.host.Files.List(contract.DirK)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		c.left("listing %s: %w", contract.DirK, err)
		return
	}
	elsewhere, whole := len(c.answer.Kept), c.lost || c.state.Directories.Has(contract.DirK)
	if len(entries) == 0 { // an earlier cleanup was killed just before it removed C:\k
		whole, _ = state.Touched(c.host.Files)
	}
	for _, e := range entries {
		path := contract.DirK + `\` + e.Name
		switch {
		case strings.EqualFold(path, contract.PathState) && !c.lost, strings.EqualFold(path, contract.DirStore):
		case c.lost || c.ours(path):
			c.removeAll(path)
		case whole:
			c.kept(path) // another program created it
		}
	}
	if len(c.answer.Left) > 0 {
		return
	}
	// If the state file is missing, the store proves that C:\k belongs to the daemon. So delete the store after
	// everything else except the state file.
	if whole || c.state.Directories.Has(contract.DirStore) {
		c.removeAll(contract.DirStore)
	}
	if c.state.Exists() {
		if err = c.state.Erase(); err != nil {
			c.left("%w", err)
			return
		}
	}
	if whole && len(c.answer.Left)+len(c.answer.Kept) == elsewhere {
		c.remove("directory", contract.DirK)
	}
}

// `ours` returns true if the daemon created the entry at path, in a C:\k that existed before the join. If the state
// file is missing, `ours` returns false, because another program may use the same names.
func (c *cleaning) ours(path string) bool {
	if !c.state.Exists() {
		return false
	}
	known := []string{}
	for _, f := range c.state.Manifest.Files { // also files that the daemon was about to write
		known = append(known, f.Path)
	}
	known = slices.Concat(known, c.state.Files, c.state.Directories, c.state.Aside, []string{
		contract.PathDaemon, contract.PathKubeconfig, contract.PathBootstrapKubeconfig,
		contract.PathDaemonKubeconfig, contract.PathState,
	})
	// The state file may not list all programs that were moved aside. Recognise them by their names, which only the
	// daemon uses.
	made := winos.StartedPath(path)
	return slices.ContainsFunc(known, func(k string) bool {
		return strings.EqualFold(k, path) || strings.EqualFold(k, made) || strings.EqualFold(k+".tmp", path)
	})
}

func (c *cleaning) remove(what, path string) { c.removeBy(c.unlink, what, path) }

func (c *cleaning) removeAll(path string) { c.removeBy(c.clear, "path", path) }

func (c *cleaning) removeBy(remove func(path string) error, what, path string) {
	if there, err := winos.Exists(c.host.Files, path); err == nil && !there || c.replaceable(path) {
		return
	}
	if err := remove(path); err != nil {
		c.left("removing %s: %w", path, err)
		return
	}
	c.removed(what, path)
}

// `replaceable` reports whether an ordinary user could replace the file or directory at path before it is removed. If
// so, `replaceable` adds path to the answer's Kept.
func (c *cleaning) replaceable(path string) bool {
	problem, err := state.UntrustedAbove(c.host.Files, path)
	if problem == nil && err == nil {
		return false
	}
	c.kept(path)
	c.log.Info("it stays, because another program could replace it just before the removal", "path", path, "problem",
		problem, "error", err)
	return true
}

// clear removes a file, or a directory with its content. After an error it continues with the next file. In C:\k, where
// only administrators can replace files, it also moves running programs to another directory.
func (c *cleaning) clear(path string) error {
	err := c.host.Files.RemoveAll(path)
	if errors.Is(err, winos.ErrInUse) && contract.Within(contract.DirK, path) {
		return c.dislodge(path)
	}
	return err
}

// dislodge removes a file, or a directory with its content, after RemoveAll has failed. It moves running programs to
// another directory.
func (c *cleaning) dislodge(path string) error {
	info, err := c.host.Files.Stat(path)
	if err != nil || !info.Dir {
		return c.unlink(path)
	}
	entries, err := c.host.Files.List(path)
	if err != nil {
		return err
	}
	var all []error
	for _, e := range entries {
		all = append(all, c.dislodge(path+`\`+e.Name))
	}
	return errors.Join(append(all, c.host.Files.Remove(path))...)
}

// unlink removes a file or an empty directory. If the file is in C:\k and in use, such as a running exe, unlink moves
// it to a unique name outside C:\k, and the next boot deletes it.
func (c *cleaning) unlink(path string) error {
	err := c.host.Files.Remove(path)
	if !errors.Is(err, winos.ErrInUse) || !contract.Within(contract.DirK, path) {
		return err
	}
	if moved := winos.RemoveInUse(c.host, path); moved != nil {
		return errors.Join(err, moved)
	}
	c.answer.RebootAdvised = true
	c.log.Info("a file is in use; Windows deletes it at the next boot", "path", path)
	return nil
}
