package mirror_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// restrict creates rules in the form of rulesOf, and applies the cluster's settings for registries to them.
func restrict(t *testing.T, sources contract.RegistrySources, sets ...mirror.Set) mirror.Rules {
	t.Helper()
	merged, _ := mirror.Merge(sets)
	rules, err := mirror.NewRules(merged)
	if err == nil {
		rules, err = rules.Restrict(sources)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestWhatTheClusterSaysAboutRegistriesIsCheckedAndSorted(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		raw      contract.RegistrySources
		want     *contract.RegistrySources
		rejected int
	}{
		"nothing": {},
		"in one form, each once": {
			raw: contract.RegistrySources{Blocked: []string{"Quay.io:443/a", "*.Example.com", "quay.io/a"},
				Insecure: []string{"reg.io:5000"}},
			want: &contract.RegistrySources{
				Blocked: []string{"*.example.com", "quay.io/a"}, Insecure: []string{"reg.io:5000"},
			},
		},
		"an invalid entry allows nothing": {
			raw:  contract.RegistrySources{Restricted: true, Allowed: []string{"https://quay.io", "\x00"}},
			want: &contract.RegistrySources{Restricted: true}, rejected: 2,
		},
		"both lists apply, and this is reported": {
			raw: contract.RegistrySources{Restricted: true, Allowed: []string{"quay.io"},
				Blocked: []string{"quay.io/a"}},
			want: &contract.RegistrySources{Restricted: true, Allowed: []string{"quay.io"},
				Blocked: []string{"quay.io/a"}}, rejected: 1,
		},
		"a device name of Windows is a host like any other": {
			raw:  contract.RegistrySources{Blocked: []string{"nul.io"}, Insecure: []string{"nul.io"}},
			want: &contract.RegistrySources{Blocked: []string{"nul.io"}, Insecure: []string{"nul.io"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, rejected := mirror.CheckSources(c.raw)
			if diff := cmp.Diff(c.want, got); diff != "" || len(rejected) != c.rejected {
				t.Errorf("%s, rejected %v", diff, rejected)
			}
			for _, p := range rejected {
				if p.Reason != contract.ReasonMirrorRejected ||
					!strings.Contains(p.Detail, mirror.SourcesObject) || strings.ContainsRune(p.Detail, 0) {
					t.Errorf("%v", p)
				}
			}
		})
	}
}

func TestIllegalScopesAreNoRules(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "a/b/c", "https://quay.io", "quay.io:tag/x@", "*.", "*.a.io/x",
		strings.Repeat("a", 600) + ".io"} {
		for _, s := range []contract.RegistrySources{{Blocked: []string{text}}, {Allowed: []string{text}},
			{Always: []string{text}}, {Insecure: []string{text}}} {
			if _, err := (mirror.Rules{}).Restrict(s); err == nil {
				t.Errorf("%+v was accepted", s)
			}
		}
	}
}

// TestABlockedRegistryIsBlockedAtEachPort checks that a blocked registry is blocked at each port, as on Linux nodes,
// and a blocked namespace only at its own port.
func TestABlockedRegistryIsBlockedAtEachPort(t *testing.T) {
	t.Parallel()
	rules := restrict(t, contract.RegistrySources{Blocked: []string{"quay.io", "ghcr.io/bad", "m.io:5000"}},
		mirror.Set{Kind: contract.PullByTag, Source: "docker.io", Mirrors: []string{"quay.io:8443/hub"}},
		mirror.Set{Kind: contract.PullByTag, Source: "quay.io:8443/own", Mirrors: []string{"n.io"}})
	for name, want := range map[string]bool{"quay.io/a": true, "quay.io:443/a": true, "quay.io:8443/a": true, "quay.io:8443/own/a": false,
		"quay.iot/a": false, "ghcr.io/bad": true, "ghcr.io:8443/bad": false, "m.io:5000/a": true, "m.io/a": false} {
		image, _, err := parse(name)
		if err != nil {
			t.Fatal(err)
		}
		if why := rules.Refused(image); (why != "") != want {
			t.Errorf("%s: %q", name, why)
		}
	}
	hub, _, err := parse("nginx")
	if err != nil {
		t.Fatal(err)
	}
	if places := rules.Sources(hub, contract.PullByTag); len(places) != 1 || places[0] != hub {
		t.Errorf("a blocked registry is used as a mirror: %v", places)
	}
}

func TestRefusedAndInsecure(t *testing.T) {
	t.Parallel()
	rules := restrict(t, contract.RegistrySources{
		Blocked: []string{"quay.io/bad", "*.evil.example"}, Restricted: true,
		Allowed: []string{"quay.io", "docker.io/library", "m.io:5000"},
		Always:  []string{"mcr.microsoft.com/oss/kubernetes/pause"}, Insecure: []string{"quay.io/lab", "*.lab.example"},
	}, mirror.Set{Kind: contract.PullByTag, Source: "quay.io",
		Mirrors: []string{"quay.io/bad", "x.evil.example", "elsewhere.io"}})
	for image, want := range map[string]string{
		"quay.io/a": "elsewhere.io/a quay.io/a", "quay.io/bad/a": "", "quay.io/bade": "elsewhere.io/bade quay.io/bade",
		"QUAY.io:443/bad/x": "",
		"nginx":             "docker.io/library/nginx", "docker.io/other/nginx": "", "m.io:5000/a": "m.io:5000/a",
		"m.io/a": "",
		"mcr.microsoft.com/oss/kubernetes/pause:3.9": "mcr.microsoft.com/oss/kubernetes/pause",
		"mcr.microsoft.com/windows/servercore":       "",
		"quay.io/lab/x":                              "quay.io/lab/x",
		// quay.io/lab is a source of its own, so the mirrors of quay.io don't apply to it.
	} {
		reference, kind, err := parse(image)
		if err != nil {
			t.Fatal(err)
		}
		var places []string
		for _, p := range rules.Sources(reference, kind) {
			places = append(places, p.String())
		}
		if got := strings.Join(places, " "); got != want {
			t.Errorf("%s is pulled from %q, want %q", image, got, want)
		}
		if why := rules.Refused(reference); (why != "") != (want == "") {
			t.Errorf("%s: %q", image, why)
		}
	}
	for name, want := range map[string]bool{"quay.io/lab/x": true, "quay.io:443/lab": true, "quay.io/labs": false,
		"a.lab.example:5000/x": true, "lab.example/x": false} {
		host, repository, _ := strings.Cut(name, "/")
		if rules.Insecure(mirror.At(host, repository)) != want {
			t.Errorf("is %s insecure? want %t", name, want)
		}
	}
}
