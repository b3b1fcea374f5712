package sim

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Snapshot is the state of a machine that remains after a reboot. It maps the name of each item to a line of text, so
// that snapshots can be compared and printed.
type Snapshot map[string]string

// Snapshot returns the state of the machine: files with their access and the digests of their content, services,
// environment, certificates, HNS networks, features and the host name. It omits times and processes. It also omits the
// exclusions of Windows Defender, because winos can't remove them.
func (m *Machine) Snapshot() Snapshot {
	s := Snapshot{}
	m.volume.snapshot(s)
	m.services.snapshot(s)
	for name, value := range m.environment.all() {
		s["environment "+fold(name)] = value
	}
	for _, der := range m.trust.list() {
		s["certificate "+contract.Digest(der)] = fmt.Sprintf("%d bytes", len(der))
	}
	m.hns.snapshot(s)
	m.system.snapshot(s)
	return s
}

// Diff returns the differences between two snapshots, sorted: "+ key: value", "- key: value", "~ key: before -> after".
// It omits files at and below the paths in `except`, and the directories that contain these paths.
func Diff(before, after Snapshot, except ...string) []string {
	var lines []string
	for _, key := range slices.Sorted(maps.Keys(union(before, after))) {
		if excepted(key, except) {
			continue
		}
		old, had := before[key]
		now, has := after[key]
		switch {
		case !had:
			lines = append(lines, "+ "+key+": "+now)
		case !has:
			lines = append(lines, "- "+key+": "+old)
		case old != now:
			lines = append(lines, "~ "+key+": "+old+" -> "+now)
		}
	}
	return lines
}

func union(a, b Snapshot) Snapshot {
	all := maps.Clone(a)
	if all == nil {
		all = Snapshot{}
	}
	maps.Copy(all, b)
	return all
}

func excepted(key string, except []string) bool {
	path, isFile := strings.CutPrefix(key, "file ")
	if !isFile {
		return false
	}
	path = fold(path)
	within := func(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+`\`) }
	return slices.ContainsFunc(except, func(e string) bool {
		e = fold(e)
		return within(path, e) || within(e, path)
	})
}

func (v *volume) snapshot(s Snapshot) {
	v.mu.RLock()
	defer v.mu.RUnlock()
	var walk func(prefix string, n *node)
	walk = func(prefix string, n *node) {
		for key, child := range n.children {
			path := prefix + `\` + key
			what := "directory"
			if child.leads != nil {
				what = "junction"
			} else if !child.dir() {
				what = fmt.Sprintf("%d bytes %s", child.content.size, child.digest())
			}
			if child.access == winos.AccessAdministrators {
				what += " administrators only"
			}
			s["file "+path] = what
			walk(path, child)
		}
	}
	walk("C:", v.root)
}

func (n *node) digest() string {
	h := sha256.New()
	_, _ = io.Copy(h, io.NewSectionReader(contentReader{&n.content}, 0, n.content.size))
	return hex.EncodeToString(h.Sum(nil))
}

type contentReader struct{ c *content }

func (r contentReader) ReadAt(p []byte, off int64) (int, error) { return r.c.readAt(p, off) }

func (s *manager) snapshot(into Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, v := range s.services {
		c := v.config
		into["service "+key] = fmt.Sprintf("%s %q command %q after %q environment %v recovery %v reset %v", v.state,
			c.Description, c.Command,
			c.Dependencies, c.Environment, c.Recovery, c.RecoveryReset)
	}
}

func (h *hns) snapshot(s Snapshot) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, n := range h.networks {
		s["network "+name] = fmt.Sprintf("%s VNI %d management %s endpoints %v", n.Subnet, n.VNI, n.ManagementIP,
			n.endpoints)
	}
}

func (s *system) snapshot(into Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	into["hostname"] = cmp.Or(s.pendingName, s.hostname)
	for name, state := range s.features {
		into["feature "+name] = string(state)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
