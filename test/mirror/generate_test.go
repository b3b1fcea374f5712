package conformance_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

var seed = flag.Uint64("seed", 0, "repeat the table of a failed run; 0 makes a new one")

// generator creates random objects and image names that are related to each other.
type generator struct{ *rand.Rand }

func newGenerator(t *testing.T) generator {
	t.Helper()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("to repeat this run, use -seed %d", from)
	return generator{rand.New(rand.NewPCG(from, 0))}
}

func (g generator) pick(all ...string) string { return all[g.IntN(len(all))] }

func hosts() []string {
	return []string{
		"quay.io", "docker.io", "registry.redhat.io", "reg.example.com", "reg.a.example.com", "x.reg.a.example.com",
		"reg.a.example.com:5000", "reg.example.com:5000", "localhost:5000",
		"10.1.2.3:5000", "10.1.2.3", "quay.io.example.com", "mirror.example.com",
	}
}

// path returns a path with at most three components from a short list, so that several paths have the same prefix.
func (g generator) path() string {
	var parts []string
	for range g.IntN(4) {
		parts = append(parts, g.pick("a", "ab", "b", "a.b", "a_b", "library", "team-x"))
	}
	return strings.Join(parts, "/")
}

func (g generator) location(hosts ...string) string {
	return strings.TrimSuffix(g.pick(hosts...)+"/"+g.path(), "/")
}

// objects returns ImageDigestMirrorSets and ImageTagMirrorSets that the API server accepts. A list never contains the
// same mirror twice.
func (g generator) objects() []mirror.Set {
	var sources []string
	for range 1 + g.IntN(6) {
		if g.IntN(5) == 0 {
			sources = append(sources, g.pick("*.example.com", "*.a.example.com", "*.io", "*.redhat.io"))
		} else {
			sources = append(sources, g.location(hosts()...))
		}
	}
	var sets []mirror.Set
	for range 1 + g.IntN(10) {
		set := mirror.Set{
			Object: "Set/" + g.pick("a", "b", "c"), Kind: contract.PullKind(g.pick("digest", "tag")),
			Source: g.pick(sources...),
			Policy: mirror.Policy(g.pick("", "", string(mirror.AllowContactingSource),
				string(mirror.NeverContactSource))),
		}
		for range g.IntN(5) {
			m := g.location("m.example.net", "n.example.net:5000", "o.example.net", "mirror.example.com", "quay.io",
				"docker.io")
			if g.IntN(12) == 0 && !strings.HasPrefix(set.Source, "*") {
				m = set.Source
			}
			if !slices.Contains(set.Mirrors, m) {
				set.Mirrors = append(set.Mirrors, m)
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// name returns an image name. Three of four names are similar to a source or a mirror.
func (g generator) name(sets []mirror.Set) string {
	near := g.location(hosts()...)
	if set := sets[g.IntN(len(sets))]; g.IntN(4) > 0 {
		near = set.Source
		if domain, ok := strings.CutPrefix(near, "*"); ok {
			near = g.pick("reg", "x.y", "reg.a") + domain
		} else if len(set.Mirrors) > 0 && g.IntN(5) == 0 {
			near = g.pick(set.Mirrors...)
		}
		if parent := strings.LastIndexByte(near, '/'); parent > 0 && g.IntN(4) == 0 {
			near = near[:parent]
		}
	}
	rest := g.path()
	if rest == "" && (!strings.Contains(near, "/") || g.IntN(2) == 0) {
		rest = "app"
	}
	switch {
	case rest == "":
		return near
	case strings.Contains(near, "/") && g.IntN(6) == 0:
		return near + "-" + rest // begins like a source, but is not below it
	}
	return near + "/" + rest
}
