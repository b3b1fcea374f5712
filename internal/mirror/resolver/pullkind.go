package resolver

import (
	"encoding/json"
	"net/url"
	"slices"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// pullKinds remembers of which pull a digest is part. containerd asks for a tag once, and from then
// on by the digests that it found: nothing in those requests says that the pull is one by tag, for
// which other mirrors may be meant. So the resolver reads the manifests that it hands out, and
// remembers what they name, below what named them:
//
//	HEAD tag ─► manifest (tag) ─► manifest, config, layers …
//
// A pull by digest begins with a HEAD of that digest, which makes that tree one of digests again.
// The latest word counts.
type pullKinds struct {
	known *memory[place, origin]
}

// place is a digest within the repository that the user named.
type place struct {
	registry, repository string
	digest               digest
}

type origin struct {
	kind   contract.PullKind
	parent digest // empty for what a pull began with
	size   int64  // as the parent says; 0 if nobody said
	// pending says that a pull of this kind has it still to come, whatever other pulls of the same
	// image began meanwhile.
	pending bool
}

// A manifest names tens of digests, a node pulls tens of images at a time; an entry takes about 300
// bytes. What is forgotten is only looked for in more places.
const (
	pullKindsKept = 8192
	pullKindLife  = 6 * time.Hour
)

// generations is how deep manifests lie within each other: index, manifest, layer, and one for
// luck.
const generations = 4

func newPullKinds(now func() time.Time) *pullKinds {
	return &pullKinds{known: newMemory[place, origin](pullKindsKept, now)}
}

// kind says of which pull the target is part, or nothing if that isn't known.
func (l *pullKinds) kind(t target) (contract.PullKind, bool) {
	if t.tag != "" {
		return contract.PullByTag, true
	}
	at := place{t.registry, t.repository, t.digest}
	found, ok := l.known.get(at)
	if found.pending {
		return found.kind, true
	}
	for range generations {
		if found.parent == "" {
			break
		}
		at.digest = found.parent
		parent, still := l.known.get(at)
		if !still {
			break
		}
		found = parent
	}
	return found.kind, ok
}

// size is what the manifest says that names the target, or 0.
func (l *pullKinds) size(t target) int64 {
	found, _ := l.known.get(place{t.registry, t.repository, t.digest})
	return found.size
}

// doubt forgets the size. What a manifest says about something else is no more than that: a wrong
// one must not keep the next attempt from what all places have.
func (l *pullKinds) doubt(t target) {
	at := place{t.registry, t.repository, t.digest}
	if found, ok := l.known.get(at); ok && found.size > 0 {
		l.known.change(at, pullKindLife, func(old origin) origin { old.size = 0; return old })
	}
}

// begin notes that a pull of this kind begins with a digest. One that nobody served changes nothing
// for those that are under way.
func (l *pullKinds) begin(t target, d digest, kind contract.PullKind, served bool) {
	l.known.change(place{t.registry, t.repository, d}, pullKindLife, func(old origin) origin {
		if !served && old.pending {
			return old
		}
		return origin{kind: kind, size: old.size, pending: served}
	})
}

// arrived notes that a pull has what it asked for.
func (l *pullKinds) arrived(t target) {
	at := place{t.registry, t.repository, t.digest}
	if found, ok := l.known.get(at); ok && found.pending {
		l.known.change(at, pullKindLife, func(old origin) origin { old.pending = false; return old })
	}
}

// descriptors are those parts of any manifest or index that lead further.
type descriptors struct {
	MediaType string       `json:"mediaType"`
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
	Manifests []descriptor `json:"manifests"`
	Blobs     []descriptor `json:"blobs"`
}

type descriptor struct {
	Digest string   `json:"digest"`
	Size   int64    `json:"size"`
	URLs   []string `json:"urls"`
}

// elsewhere are the hosts, at most a few, from which a manifest says that layers are to be had.
// containerd asks them before anybody else, whatever the rules say.
func elsewhere(content []byte) (hosts []string) {
	var all descriptors
	if json.Unmarshal(content, &all) != nil {
		return nil
	}
	for _, layer := range all.Layers {
		for _, text := range layer.URLs {
			u, err := url.Parse(text)
			if err == nil && u.Host != "" && len(hosts) < 8 && !slices.Contains(hosts, u.Host) {
				hosts = append(hosts, u.Host)
			}
		}
	}
	return hosts
}

// maxChildren is how much of what one manifest names is noted: images have at most 127 layers, and an
// index a manifest for each platform.
const maxChildren = 512

// children notes what a manifest names.
func (l *pullKinds) children(t target, parent digest, kind contract.PullKind, content []byte) {
	var all descriptors
	if json.Unmarshal(content, &all) != nil {
		return // containerd will say so
	}
	left := maxChildren
	for _, group := range [][]descriptor{{all.Config}, all.Layers, all.Manifests, all.Blobs} {
		for _, one := range group {
			if left--; left < 0 {
				return
			}
			if d, ok := parseDigest(one.Digest); ok && one.Size >= 0 && d != parent {
				l.known.put(place{t.registry, t.repository, d},
					origin{kind: kind, parent: parent, size: one.Size, pending: true},
					pullKindLife)
			}
		}
	}
}
