package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.podman.io/image/v5/docker/reference"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// The number of generated cases is the product of objects, names and two kinds of pulls.
const (
	tables         = 400
	namesPerTable  = 40
	smallestResult = 10000
)

// windows returns a function that resolves images as a Windows node does.
func windows(t *testing.T, sets []mirror.Set) func(name string, kind contract.PullKind) []string {
	t.Helper()
	merged, rejected := mirror.Merge(sets)
	for _, r := range rejected {
		if strings.Contains(r.Detail, ", mirror ") {
			t.Fatalf("the generator created an invalid object: %v", r)
		}
	}
	rules, err := mirror.NewRules(merged)
	if err != nil {
		t.Fatal(err)
	}
	return func(name string, kind contract.PullKind) []string {
		return texts(rules.Sources(imageOf(t, name), kind))
	}
}

// TestPullSourcesEqualThoseOfLinuxNodes compares Linux and Windows nodes with thousands of generated cases. Every
// difference must be a deviation that TestDeviations explains. The test counts the deviations.
func TestPullSourcesEqualThoseOfLinuxNodes(t *testing.T) {
	t.Parallel()
	g := newGenerator(t)
	counts := map[string]int{}
	mirrored := 0
	for range tables {
		sets := g.objects()
		node := newLinux(t, sets)
		ours := windows(t, sets)
		for range namesPerTable {
			name := g.name(sets)
			for _, kind := range []contract.PullKind{contract.PullByDigest, contract.PullByTag} {
				want, got := node.sources(t, name, kind), ours(name, kind)
				deviation := compare(sets, parse(t, name, kind).Name(), want, got)
				counts[deviation]++
				if deviation == "unexplained" {
					t.Fatalf("%s by %s\nLinux   %v %v (rule %s)\nWindows %v\n%s", name, kind, want.places, want.refused,
						want.prefix, got, show(sets))
				}
				if deviation == "" && len(want.places) > 1 {
					mirrored++
				}
			}
		}
	}
	t.Logf("%d cases are equal, %d of them have mirrors; deviations: %v", counts[""], mirrored, counts)
	if counts[""] < smallestResult || mirrored < smallestResult/5 {
		t.Errorf("too few cases were compared")
	}
}

// compare returns the name of the deviation. If the results are equal, it returns an empty string. If the deviation is
// not known, it returns "unexplained".
func compare(sets []mirror.Set, name string, linux answer, windows []string) string {
	want := unique(linux.places)
	switch {
	case linux.refused != nil:
		return refusal(linux.refused)
	case slices.Equal(want, windows):
		return ""
	case linux.port:
		return "a source without a port is another registry than one with a port"
	case contradictory(sets, linux.prefix) && slices.Equal(last(want, name), last(windows, name)):
		return "contradicting orders do not bring the source forward"
	}
	return "unexplained"
}

// refusal returns the name of the deviation for an error of the Linux side.
func refusal(err error) string {
	for text, deviation := range map[string]string{
		"repository name must be canonical": "a mirror that gives no full name is passed over",
		"invalid reference format":          "a mirror that gives no name is passed over",
		"must be lowercase":                 "a mirror that gives no name is passed over",
	} {
		if strings.Contains(err.Error(), text) {
			return deviation
		}
	}
	return "unexplained"
}

func unique(places []string) []string {
	var all []string
	for _, p := range places {
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// last returns the list with one place moved to the end.
func last(places []string, place string) []string {
	rest := slices.DeleteFunc(slices.Clone(places), func(p string) bool { return p == place })
	if len(rest) < len(places) {
		rest = append(rest, place)
	}
	return rest
}

// contradictory reports whether two lists of one source and kind order two mirrors differently.
func contradictory(sets []mirror.Set, source string) bool {
	for _, kind := range []contract.PullKind{contract.PullByDigest, contract.PullByTag} {
		var lists [][]string
		for _, set := range sets {
			if set.Source == source && set.Kind == kind {
				lists = append(lists, set.Mirrors)
			}
		}
		merged := mergeAsLinux(source, append(lists, []string{"none.example"}))
		for _, list := range lists {
			if !slices.IsSortedFunc(list,
				func(a, b string) int { return at(merged, a, source) - at(merged, b, source) }) {
				return true
			}
		}
	}
	return false
}

func at(merged []string, name, source string) int {
	if i := slices.Index(merged, name); i >= 0 || name != source {
		return i
	}
	return len(merged)
}

func show(sets []mirror.Set) string {
	var text strings.Builder
	for _, set := range sets {
		fmt.Fprintf(&text, "%s %s %v %s\n", set.Kind, set.Source, set.Mirrors, set.Policy)
	}
	return text.String()
}

// TestDeviations lists every known difference between a Linux node and a Windows node, with both results. If a new
// version of either side changes a result, the test fails.
func TestDeviations(t *testing.T) {
	t.Parallel()
	const refused = "refused"
	for name, c := range map[string]struct {
		sets  []mirror.Set
		image string
		// linux is a list of repositories, or "refused".
		linux, windows string
		why            string
	}{
		"one place is tried once": {
			[]mirror.Set{tag("quay.io/a", "quay.io/a", "m.io")}, "quay.io/a/b", "quay.io/a/b m.io/b quay.io/a/b",
			"quay.io/a/b m.io/b",
			"asking the same registry again for the same changes nothing",
		},
		"contradicting orders do not bring the source forward": {
			[]mirror.Set{tag("a.io", "b.io", "c.io"), tag("a.io", "c.io", "b.io")}, "a.io/x",
			"a.io/x b.io/x c.io/x a.io/x", "b.io/x c.io/x a.io/x",
			"their order is unspecified, but that the source comes last is not",
		},
		"a source without a port is another registry than one with a port": {
			[]mirror.Set{tag("quay.io", "m.io")}, "quay.io:5000/a", "m.io:5000/a quay.io:5000/a", "quay.io:5000/a",
			"the library calls its behaviour unintended",
		},
		"never holds at each port, but the mirrors are of the registry without one": {
			[]mirror.Set{never(tag("quay.io", "m.io"))}, "quay.io:5000/a", "m.io:5000/a", "",
			"a rule is not evaded by a port; nobody says that the mirror has another one at that port",
		},
		"Docker Hub by its address": {
			[]mirror.Set{never(tag("docker.io", "m.io"))}, "registry-1.docker.io/library/a",
			"registry-1.docker.io/library/a", "m.io/library/a",
			"it is the same registry, and a rule is not evaded by another name",
		},
		"a source with the default port": {
			[]mirror.Set{never(tag("quay.io:443", "m.io"))}, "quay.io/a", "quay.io/a", "m.io/a",
			"it is the same registry",
		},
		"the default port is the same registry": {
			[]mirror.Set{tag("quay.io", "m.io")}, "quay.io:443/a", "m.io:443/a quay.io:443/a", "m.io/a quay.io/a",
			"the same effect; the port is not needed",
		},
		"the default port and a path": {
			[]mirror.Set{tag("quay.io", "m.io/x")}, "quay.io:443/a", refused, "m.io/x/a quay.io/a",
			"the same registry must not be served worse for a port that changes nothing",
		},
		"a mirror that gives no name is passed over: port and path": {
			[]mirror.Set{tag("*.example.com", "m.io/x", "n.io")}, "a.example.com:5000/b", refused,
			"n.io:5000/b a.example.com:5000/b",
			"a wildcard matches a host without its port, which can't follow a path: one bad mirror must not stop " +
				"the pull",
		},
		"a mirror that gives no full name is passed over: a registry for a repository": {
			[]mirror.Set{tag("quay.io/a", "m.io", "n.io/x")}, "quay.io/a", refused, "n.io/x quay.io/a",
			"there is no repository without a name: one bad mirror must not stop the pull",
		},
		"a mirror that gives no full name is passed over: Docker Hub": {
			[]mirror.Set{tag("quay.io", "docker.io")}, "quay.io/a", refused, "docker.io/library/a quay.io/a",
			"short names of Docker Hub are in its library",
		},
		"a host of one letter is more specific than a wildcard": {
			[]mirror.Set{tag("*.example.com", "m.io"), tag("a.example.com", "n.io")}, "a.example.com/b",
			"m.io/b a.example.com/b", "n.io/b a.example.com/b",
			"the library compares lengths, and the two are equally long; it is right for longer names",
		},
		"a domain that repeats itself": {
			[]mirror.Set{tag("*.a.io", "m.io")}, "x.a.io.a.io/b", "x.a.io.a.io/b", "m.io/b x.a.io.a.io/b",
			"the library looks at the first occurrence only; the host is under the domain",
		},
		"host names in capitals": {
			[]mirror.Set{tag("Quay.io", "M.io")}, "QUAY.io/a", "QUAY.io/a", "m.io/a quay.io/a",
			"case does not count in host names",
		},
		"never holds for host names in capitals": {
			[]mirror.Set{never(tag("quay.io", "m.io"))}, "QUAY.io/a", "QUAY.io/a", "m.io/a",
			"a rule is not evaded by capitals",
		},
		"a mirror without a dot": {
			[]mirror.Set{tag("quay.io", "mirror", "m.io")}, "quay.io/a", refused, "m.io/a quay.io/a",
			"it would be a repository of Docker Hub; it is rejected with a reason and the others are used",
		},
		"a mirror with a scheme": {
			[]mirror.Set{tag("quay.io", "m.io", "oci://n.io")}, "quay.io/a", refused, "m.io/a quay.io/a",
			"the API server does not accept it; it is rejected with a reason and the others are used",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := newLinux(t, c.sets).sources(t, c.image, contract.PullByTag)
			linux := strings.Join(answer.places, " ")
			if answer.refused != nil {
				linux = refused
			}
			merged, _ := mirror.Merge(c.sets)
			rules, err := mirror.NewRules(merged)
			if err != nil {
				t.Fatal(err)
			}
			places := texts(rules.Sources(imageOf(t, c.image), contract.PullByTag))
			if windows := strings.Join(places, " "); linux != c.linux || windows != c.windows {
				t.Errorf("%s\nLinux   %s %v\nWindows %s", c.why, linux, answer.refused, windows)
			}
		})
	}
}

// TestLinuxNodesHaveNoNamesWithIPv6 shows that Linux nodes can't parse image names with an IPv6 address. Therefore, the
// generated cases contain none.
func TestLinuxNodesHaveNoNamesWithIPv6(t *testing.T) {
	t.Parallel()
	if named, err := reference.ParseNormalizedNamed("[fd00::1]:5000/a:1.0"); err == nil {
		t.Errorf("Linux nodes accept IPv6 addresses now: add addresses to the generator (%v)", named)
	}
	if image, err := mirror.ParseRepository("[fd00::1]:5000", "a"); err != nil || image.Host != "[fd00::1]:5000" {
		t.Errorf("%v, %v", image, err)
	}
}

func texts(all []mirror.Location) (texts []string) {
	for _, at := range all {
		texts = append(texts, at.String())
	}
	return texts
}

func tag(source string, mirrors ...string) mirror.Set {
	return mirror.Set{Object: "ImageTagMirrorSet/t", Kind: contract.PullByTag, Source: source, Mirrors: mirrors}
}

func never(set mirror.Set) mirror.Set {
	set.Policy = mirror.NeverContactSource
	return set
}
