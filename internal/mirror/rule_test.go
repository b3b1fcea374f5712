package mirror_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/distribution/reference"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// rulesOf reads one rule from each line: [digest|tag] source mirror… [never].
func rulesOf(t *testing.T, lines ...string) mirror.Rules {
	t.Helper()
	var all []contract.MirrorRule
	for _, line := range lines {
		words := strings.Fields(line)
		rule := contract.MirrorRule{Kind: contract.PullKind(words[0]), Source: words[1], Mirrors: words[2:]}
		if last := len(rule.Mirrors) - 1; last >= 0 && rule.Mirrors[last] == "never" {
			rule.Mirrors, rule.NeverContactSource = rule.Mirrors[:last], true
		}
		all = append(all, rule)
	}
	rules, err := mirror.NewRules(all)
	if err != nil {
		t.Fatal(err)
	}
	return rules
}

const someDigest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// parse parses an image name as users write it. A name without a registry belongs to Docker Hub.
func parse(name string) (mirror.Location, contract.PullKind, error) {
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return mirror.Location{}, "", err
	}
	kind := contract.PullByTag
	if _, ok := named.(reference.Digested); ok {
		kind = contract.PullByDigest
	}
	image, err := mirror.ParseRepository(reference.Domain(named), reference.Path(named))
	return image, kind, err
}

// places returns the sources of an image as text, with a mark for its own registry.
func places(t *testing.T, rules mirror.Rules, name string) string {
	t.Helper()
	image, kind, err := parse(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, at := range rules.Sources(image, kind) {
		text := at.String()
		if at == image {
			text += "!"
		}
		all = append(all, text)
	}
	return strings.Join(all, " ")
}

func TestWhereAnImageIsPulledFrom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules []string
		image string
		want  string
	}{
		"no rules": {nil, "quay.io/a/b:1", "quay.io/a/b!"},
		"another registry": {[]string{"tag quay.io m.io"}, "ghcr.io/a/b:1",
			"ghcr.io/a/b!"},
		"a registry": {[]string{"tag quay.io m.io"}, "quay.io/a/b:1",
			"m.io/a/b quay.io/a/b!"},
		"any path of the mirror": {[]string{"tag quay.io/a m.io/x/y"}, "quay.io/a/b/c:1",
			"m.io/x/y/b/c quay.io/a/b/c!"},
		"a namespace for a registry": {[]string{"tag quay.io/a m.io"}, "quay.io/a/b:1",
			"m.io/b quay.io/a/b!"},
		"a repository": {[]string{"tag quay.io/a/b m.io/z"}, "quay.io/a/b:1",
			"m.io/z quay.io/a/b!"},
		"mirrors in order": {[]string{"tag quay.io z.io a.io/q m.io"}, "quay.io/b:1",
			"z.io/b a.io/q/b m.io/b quay.io/b!"},
		"only whole components": {[]string{"tag quay.io/a m.io"}, "quay.io/ab/c:1",
			"quay.io/ab/c!"},
		"only the whole host": {[]string{"tag quay.io m.io"}, "quay.io.evil.example/a:1",
			"quay.io.evil.example/a!"},
		"the default port is the same registry": {[]string{"tag quay.io m.io"}, "quay.io:443/a:1",
			"m.io/a quay.io/a!"},
		"the default port does not evade never": {[]string{"tag quay.io m.io never"}, "quay.io:443/a:1",
			"m.io/a"},
		"the default port has no rules of its own": {[]string{"tag quay.io/a m.io/b never", "tag quay.io:443 n.io"},
			"quay.io:443/a:1", "m.io/b"},
		"a mirror by its default port where never holds": {[]string{"tag quay.io m.io never",
			"tag ghcr.io quay.io:443/cache"}, "ghcr.io/a:1", "ghcr.io/a!"},
		"another port is another host": {[]string{"tag quay.io m.io"}, "quay.io:5000/a:1", "quay.io:5000/a!"},
		"a port": {[]string{"tag quay.io:5000/a m.io:6000/b"}, "quay.io:5000/a/c:1",
			"m.io:6000/b/c quay.io:5000/a/c!"},
		"the most specific wins": {[]string{"tag quay.io m.io", "tag quay.io/a/b n.io",
			"tag quay.io/a o.io"}, "quay.io/a/b/c:1", "n.io/c quay.io/a/b/c!"},
		"the others do not apply": {[]string{"tag quay.io m.io", "tag quay.io/a"}, "quay.io/a/b:1",
			"quay.io/a/b!"},
		"by digest": {[]string{"digest quay.io d.io", "tag quay.io t.io"},
			"quay.io/a" + someDigest, "d.io/a quay.io/a!"},
		"by tag": {[]string{"digest quay.io d.io", "tag quay.io t.io"}, "quay.io/a:1",
			"t.io/a quay.io/a!"},
		"by both is by digest": {[]string{"digest quay.io d.io", "tag quay.io t.io"},
			"quay.io/a:1" + someDigest, "d.io/a quay.io/a!"},
		"no tag, no digest": {[]string{"digest quay.io d.io", "tag quay.io t.io"}, "quay.io/a",
			"t.io/a quay.io/a!"},
		"a digest mirror hides tag mirrors": {[]string{"digest quay.io/a d.io", "tag quay.io t.io"}, "quay.io/a/b:1",
			"quay.io/a/b!"},
		"never":                 {[]string{"tag quay.io/a m.io never"}, "quay.io/a/b:1", "m.io/b"},
		"never, for no other":   {[]string{"tag quay.io/a m.io never"}, "quay.io/c/b:1", "quay.io/c/b!"},
		"never, for both kinds": {[]string{"tag quay.io/a m.io never"}, "quay.io/a/b" + someDigest, ""},
		"never, but below allowed": {[]string{"tag quay.io m.io never", "tag quay.io/a n.io"}, "quay.io/a/b:1",
			"n.io/b quay.io/a/b!"},
		"never, at each port": {[]string{"tag quay.io m.io never"}, "quay.io:8443/a:1", ""},
		"never, but another port has a source of its own": {[]string{"tag quay.io m.io never", "tag quay.io:8443 n.io"},
			"quay.io:8443/a:1", "n.io/a quay.io:8443/a!"},
		"never for a namespace, at no other port": {[]string{"tag quay.io/a m.io never"}, "quay.io:8443/a/b:1",
			"quay.io:8443/a/b!"},
		"never for the default port, by the name without it": {[]string{"tag quay.io:443 m.io never"}, "quay.io/a:1",
			"m.io/a"},
		"a mirror at another port where never holds": {[]string{"tag quay.io m.io never", "tag ghcr.io quay.io:5000"},
			"ghcr.io/a:1", "ghcr.io/a!"},
		"never, and no mirror": {[]string{"tag quay.io never"}, "quay.io/a/b:1", ""},
		"a mirror where never holds": {[]string{"tag quay.io m.io never", "tag ghcr.io quay.io/cache n.io"},
			"ghcr.io/a:1", "n.io/a ghcr.io/a!"},
		"a mirror below the source": {[]string{"tag quay.io quay.io/cache"}, "quay.io/a:1",
			"quay.io/cache/a quay.io/a!"},
		"the source among its mirrors": {[]string{"tag quay.io a.io quay.io b.io"}, "quay.io/a:1",
			"a.io/a quay.io/a! b.io/a"},
		"the same place twice": {[]string{"tag quay.io a.io/x a.io/x"}, "quay.io/a:1", "a.io/x/a quay.io/a!"},
		"mirrors in a ring do not chain": {[]string{"tag quay.io ghcr.io", "tag ghcr.io quay.io"}, "quay.io/a:1",
			"ghcr.io/a quay.io/a!"},
		"a wildcard": {[]string{"tag *.example.com m.io/x"}, "a.example.com/b/c:1",
			"m.io/x/b/c a.example.com/b/c!"},
		"a wildcard is not its domain": {[]string{"tag *.example.com m.io"}, "example.com/b:1", "example.com/b!"},
		"a wildcard needs the dot":     {[]string{"tag *.example.com m.io"}, "badexample.com/b:1", "badexample.com/b!"},
		"a wildcard at any depth": {[]string{"tag *.example.com m.io"}, "a.b.c.example.com/b:1",
			"m.io/b a.b.c.example.com/b!"},
		"a wildcard that repeats": {[]string{"tag *.a.io m.io"}, "a.io.a.io/b:1", "m.io/b a.io.a.io/b!"},
		"the longest wildcard": {[]string{"tag *.example.com m.io", "tag *.b.example.com n.io"},
			"a.b.example.com/c:1", "n.io/c a.b.example.com/c!"},
		"a host before a wildcard": {[]string{"tag *.example.com m.io", "tag a.example.com n.io"},
			"a.example.com/c:1", "n.io/c a.example.com/c!"},
		"a path before a wildcard": {[]string{"tag *.example.com m.io", "tag a.example.com/c n.io"},
			"a.example.com/c/d:1", "n.io/d a.example.com/c/d!"},
		"a wildcard beside a path": {[]string{"tag *.example.com m.io", "tag a.example.com/c n.io"},
			"a.example.com/d:1", "m.io/d a.example.com/d!"},
		"a wildcard keeps the port": {[]string{"tag *.example.com m.io"}, "a.example.com:5000/b:1",
			"m.io:5000/b a.example.com:5000/b!"},
		"a wildcard with two ports": {[]string{"tag *.example.com m.io:6000 m.io/x n.io"}, "a.example.com:5000/b:1",
			"n.io:5000/b a.example.com:5000/b!"},
		"IPv6": {[]string{"tag [fd00::1]:5000/a [fd00::2]/b"}, "[fd00::1]:5000/a/c:1",
			"[fd00::2]/b/c [fd00::1]:5000/a/c!"},
		"host names in capitals": {[]string{"tag quay.io m.io"}, "Quay.IO/a:1", "m.io/a quay.io/a!"},
		"Docker Hub by its short name": {[]string{"tag docker.io m.io"}, "nginx:1",
			"m.io/library/nginx docker.io/library/nginx!"},
		"Docker Hub by a namespace": {[]string{"tag docker.io/org m.io"}, "org/app:1", "m.io/app docker.io/org/app!"},
		"Docker Hub's library": {[]string{"tag docker.io/library m.io"}, "docker.io/nginx:1",
			"m.io/nginx docker.io/library/nginx!"},
		"Docker Hub's other name": {[]string{"tag docker.io m.io"}, "index.docker.io/org/app:1",
			"m.io/org/app docker.io/org/app!"},
		"Docker Hub as a mirror": {[]string{"tag quay.io docker.io docker.io/cache"}, "quay.io/app:1",
			"docker.io/library/app docker.io/cache/app quay.io/app!"},
		"a registry for a repository": {[]string{"tag quay.io/a m.io n.io/x"}, "quay.io/a:1", "n.io/x quay.io/a!"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := places(t, rulesOf(t, c.rules...), c.image); got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// TestTheExampleOfTheDocuments checks the example in docs/mirrors.md.
func TestTheExampleOfTheDocuments(t *testing.T) {
	t.Parallel()
	merged, rejected := mirror.Merge([]mirror.Set{
		{
			Object: "ImageTagMirrorSet/team", Kind: contract.PullByTag, Source: "quay.io/team",
			Policy:  mirror.NeverContactSource,
			Mirrors: []string{"mirror.example.com:5000/copies/of-team", "backup.example.com/quay"},
		},
		{Object: "ImageTagMirrorSet/team", Kind: contract.PullByTag, Source: "*.build.example.com",
			Mirrors: []string{"mirror.example.com:5000/build"}},
	})
	rules, err := mirror.NewRules(merged)
	if err != nil || rejected != nil {
		t.Fatal(err, rejected)
	}
	for name, want := range map[string]string{
		"quay.io/team/app:1.2":           "mirror.example.com:5000/copies/of-team/app backup.example.com/quay/app",
		"quay.io/team/app" + someDigest:  "",
		"quay.io/teams/app:1.2":          "quay.io/teams/app!",
		"quay.io/other:1":                "quay.io/other!",
		"eu.build.example.com/nightly:3": "mirror.example.com:5000/build/nightly eu.build.example.com/nightly!",
	} {
		if got := places(t, rules, name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

func TestNamesThatGetTooLongArePassedOver(t *testing.T) {
	t.Parallel()
	rules := rulesOf(t, "tag quay.io m.io/"+strings.Repeat("a", 200)+" n.io")
	image := mirror.At("quay.io", strings.Repeat("b", 100))
	if pulls := rules.Sources(image, contract.PullByTag); len(pulls) != 2 || pulls[0].Host != "n.io" {
		t.Errorf("%v", pulls)
	}
}

func TestRepositories(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"nginx":                       "docker.io/library/nginx tag",
		"org/app:v1":                  "docker.io/org/app tag",
		"localhost/app":               "localhost/app tag",
		"registry:5000/app":           "registry:5000/app tag",
		"registry/app:5000":           "docker.io/registry/app tag",
		"Quay.io/app" + someDigest:    "quay.io/app digest",
		"quay.io/app:v1" + someDigest: "quay.io/app digest",
		"index.docker.io/app":         "docker.io/library/app tag",
		"[fd00::1]:80/a/b:c":          "[fd00::1]:80/a/b tag",
	} {
		if got, kind, err := parse(text); err != nil || got.String()+" "+string(kind) != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{
		"", "/", ":", "@", "quay.io/", "quay.io/a:", "quay.io/a@", "quay.io/a@sha256:12", "quay.io/A", "quay.io/a b",
		"quay.io/../a", "https://quay.io/a", "quay.io/a:-x",
		"quay.io/a:" + strings.Repeat("x", 129), "quay.io/a@md5:0123456789abcdef0123456789abcdef", "a\x00b",
		strings.Repeat("a", 1<<16), "quay.io/a" + strings.ToUpper(someDigest),
	} {
		if got, _, err := parse(text); err == nil {
			t.Errorf("%.40q was read as %v", text, got)
		}
	}
}

func TestRulesThatMergeDoesNotGiveAreRefused(t *testing.T) {
	t.Parallel()
	good := contract.MirrorRule{Source: "quay.io", Kind: contract.PullByTag, Mirrors: []string{"m.io"}}
	for name, bad := range map[string]contract.MirrorRule{
		"no source":        {Kind: contract.PullByTag},
		"no kind":          {Source: "ghcr.io"},
		"twice":            good,
		"a hostile mirror": {Source: "ghcr.io", Kind: contract.PullByTag, Mirrors: []string{"m.io\n"}},
		"a wildcard":       {Source: "ghcr.io", Kind: contract.PullByTag, Mirrors: []string{"*.m.io"}},
	} {
		rules, err := mirror.NewRules([]contract.MirrorRule{good, bad})
		problem, ok := contract.AsProblem(err)
		if !ok || problem.Reason != contract.ReasonManifestInvalid {
			t.Errorf("%s: %v", name, err)
		}
		if pulls := rules.Sources(mirror.At("quay.io", "a"), contract.PullByTag); len(pulls) != 1 {
			t.Errorf("%s: the rules are used all the same: %v", name, pulls)
		}
	}
}

func TestAddressOfDockerHub(t *testing.T) {
	t.Parallel()
	var got []string
	rules := rulesOf(t, "tag quay.io docker.io/cache m.io:5000")
	for _, p := range rules.Sources(mirror.At("quay.io", "a"), contract.PullByTag) {
		got = append(got, p.Address())
	}
	if !slices.Equal(got, []string{"registry-1.docker.io", "m.io:5000", "quay.io"}) {
		t.Errorf("%v", got)
	}
}
