package conformance_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// registries returns the registry settings of an Image object. They name only registries that are related to the mirror
// sets.
func (g generator) registries(sets []mirror.Set) contract.RegistrySources {
	scope := func() string {
		set := sets[g.IntN(len(sets))]
		switch g.IntN(4) {
		case 0:
			// exclude domains whose hosts have one letter; TestDeviations explains the difference
			return g.pick("*.example.com", "*.a.example.com", "*.io", "*.net")
		case 1:
			return set.Source
		case 2:
			if len(set.Mirrors) > 0 {
				return g.pick(set.Mirrors...)
			}
		}
		return g.location(hosts()...)
	}
	scopes := func(most int) (all []string) {
		for range g.IntN(most + 1) {
			all = append(all, scope())
		}
		return all
	}
	s := contract.RegistrySources{Insecure: scopes(3)}
	if g.IntN(2) == 0 {
		s.Blocked = scopes(3)
		return s
	}
	s.Allowed = scopes(6)
	s.Restricted = len(s.Allowed) > 0
	return s
}

func restricted(t *testing.T, sets []mirror.Set, raw contract.RegistrySources) mirror.Rules {
	t.Helper()
	merged, _ := mirror.Merge(sets)
	rules, err := mirror.NewRules(merged)
	if err != nil {
		t.Fatal(err)
	}
	checked, rejected := mirror.CheckSources(raw)
	if len(rejected) > 0 {
		t.Fatalf("the generator created an invalid object: %v", rejected[0])
	}
	if checked != nil {
		if rules, err = rules.Restrict(*checked); err != nil {
			t.Fatal(err)
		}
	}
	return rules
}

// TestRegistrySourcesMeanWhatTheyMeanOnLinuxNodes compares Linux and Windows nodes with generated registry settings:
// which images are refused, from which registries the others are pulled, and for which registries certificates aren't
// verified.
func TestRegistrySourcesMeanWhatTheyMeanOnLinuxNodes(t *testing.T) {
	t.Parallel()
	g := newGenerator(t)
	counts := map[string]int{}
	for range tables {
		sets := g.objects()
		raw := g.registries(sets)
		node, rules := newLinuxWith(t, sets, raw), restricted(t, sets, raw)
		for range namesPerTable {
			name := g.name(sets)
			for _, kind := range []contract.PullKind{contract.PullByDigest, contract.PullByTag} {
				want := node.sources(t, name, kind)
				var got []string
				for _, p := range rules.Sources(imageOf(t, name), kind) {
					got = append(got, p.String())
					linux, both := want.insecure[p.String()]
					if ours := rules.Insecure(p); both && ours != linux && !want.port &&
						!isBelowMirror(raw, sets, p) {
						t.Fatalf("%s by %s: %v insecure: Linux %t, Windows %t\n%+v\n%s", name, kind, p, linux, ours,
							raw, show(sets))
					}
				}
				deviation := compare(sets, parse(t, name, kind).Name(), want, got)
				switch {
				case deviation == "unexplained":
					t.Fatalf("%s by %s\nLinux   %v %v (rule %s)\nWindows %v\n%+v\n%s", name, kind, want.places,
						want.refused, want.prefix, got, raw, show(sets))
				case deviation == "" && len(got) == 0:
					deviation = "refused by both"
				case deviation == "" && len(want.insecure) > 0 &&
					slices.Contains(slices.Collect(maps.Values(want.insecure)), true):
					deviation = "insecure for both"
				}
				counts[deviation]++
			}
		}
	}
	t.Logf("%v", counts)
	if counts["refused by both"] < smallestResult/4 || counts["insecure for both"] < smallestResult/20 ||
		counts[""] < smallestResult/4 {
		t.Errorf("too few cases were compared")
	}
}

// isBelowMirror reports whether an insecure namespace is below a mirror or on the mirror's host. In this case, Linux
// and Windows differ: see TestSourceDeviations.
func isBelowMirror(raw contract.RegistrySources, sets []mirror.Set, p mirror.Location) bool {
	name := p.String()
	return slices.ContainsFunc(raw.Insecure, func(scope string) bool {
		return isWithin(name, scope) && slices.ContainsFunc(sets, func(set mirror.Set) bool {
			return slices.ContainsFunc(set.Mirrors, func(m string) bool { return strings.HasPrefix(scope, m+"/") })
		})
	})
}

// TestSourceDeviations lists the known differences between Linux and Windows nodes, with both results.
func TestSourceDeviations(t *testing.T) {
	t.Parallel()
	mirrored := []mirror.Set{tag("quay.io", "m.io")}
	for name, c := range map[string]struct {
		sets           []mirror.Set
		sources        contract.RegistrySources
		image          string
		linux, windows string
		why            string
	}{
		"an insecure namespace below a mirror": {
			mirrored, contract.RegistrySources{Insecure: []string{"m.io/a"}}, "quay.io/a/b", "m.io/a/b quay.io/a/b",
			"m.io/a/b! quay.io/a/b",
			"Linux looks at what the mirror is called, not at where the image lies",
		},
		"the default port is no way around a block": {
			nil, contract.RegistrySources{Blocked: []string{"quay.io:443"}}, "quay.io/a", "quay.io/a", "",
			"it is the same registry",
		},
		"the default port is no other registry for those that are allowed": {
			nil, contract.RegistrySources{Allowed: []string{"quay.io"}, Restricted: true}, "quay.io:443/a", "",
			"quay.io/a", "it is the same registry",
		},
		"what every pod needs is never refused": {
			nil, contract.RegistrySources{Allowed: []string{"quay.io"}, Restricted: true,
				Always: []string{"mcr.microsoft.com/oss/kubernetes/pause"}},
			"mcr.microsoft.com/oss/kubernetes/pause", "", "mcr.microsoft.com/oss/kubernetes/pause",
			"Linux nodes except the images of the release in the same way",
		},
		"nothing else of that registry is": {
			nil, contract.RegistrySources{Allowed: []string{"quay.io"}, Restricted: true,
				Always: []string{"mcr.microsoft.com/oss/kubernetes/pause"}},
			"mcr.microsoft.com/oss/kubernetes/pause-win", "", "", "only that repository is needed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := newLinuxWith(t, c.sets, c.sources).sources(t, c.image, contract.PullByTag)
			merged, _ := mirror.Merge(c.sets)
			rules, err := mirror.NewRules(merged)
			if err == nil {
				rules, err = rules.Restrict(c.sources)
			}
			if err != nil {
				t.Fatal(err)
			}
			mark := map[bool]string{true: "!"}
			var linux, windows []string
			for _, place := range answer.places {
				linux = append(linux, place+mark[answer.insecure[place]])
			}
			for _, p := range rules.Sources(imageOf(t, c.image), contract.PullByTag) {
				windows = append(windows, p.String()+mark[rules.Insecure(p)])
			}
			if l, w := strings.Join(linux, " "), strings.Join(windows, " "); l != c.linux || w != c.windows {
				t.Errorf("%s\nLinux   %s %v\nWindows %s", c.why, l, answer.refused, w)
			}
		})
	}
}
