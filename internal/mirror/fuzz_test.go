package mirror_test

import (
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

func FuzzParseRepository(f *testing.F) {
	for _, text := range []string{"nginx", "quay.io/a/b:c", "quay.io/a" + someDigest, "[fd00::1]:80/a", "localhost/x",
		"A/b", "a:b:c/d@e"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		named, kind, err := parse(text)
		if err != nil {
			return
		}
		suffix := ":x"
		if kind == contract.PullByDigest {
			suffix = someDigest
		}
		if again, kindAgain, err := parse(named.String() + suffix); err != nil || again != named || kindAgain != kind {
			t.Errorf("%q is %v, which is %v, %v", text, named, again, err)
		}
		if sources := (mirror.Rules{}).Sources(named, kind); len(sources) != 1 || sources[0] != named {
			t.Errorf("%v", sources)
		}
	})
}

// FuzzRules takes any text that a user could write, merges it into rules, and uses them for pulls.
func FuzzRules(f *testing.F) {
	f.Add("quay.io/a", "m.io/x", "n.io:5000", true, "quay.io/a/b")
	f.Add("*.example.com", "m.io", "quay.io", false, "x.example.com:5000/b")
	f.Add("[fd00::1]:5000", "docker.io", "[::1]", true, "[fd00::1]:5000/b")
	for _, c := range hostile() {
		if len(c.text) < 1000 {
			f.Add(c.text, "m.io", c.text, true, c.text+"/b")
			f.Add("quay.io", c.text, "m.io", false, "quay.io/b")
		}
	}
	f.Fuzz(func(t *testing.T, source, first, second string, never bool, name string) {
		sets := []mirror.Set{
			{Object: "ImageDigestMirrorSet/a", Kind: contract.PullByDigest, Source: source,
				Mirrors: []string{first, second}},
			{Object: "ImageTagMirrorSet/b", Kind: contract.PullByTag, Source: source, Mirrors: []string{second}},
			{Object: "ImageTagMirrorSet/c", Kind: contract.PullByTag, Source: second, Mirrors: []string{first}},
		}
		if never {
			sets[0].Policy = mirror.NeverContactSource
		}
		merged, rejected := mirror.Merge(sets)
		for _, r := range rejected {
			if strings.ContainsAny(r.Detail, "\n\r\x00\x1b") || strings.HasSuffix(r.Detail, ": ") {
				t.Errorf("%q", r.Detail)
			}
		}
		rules, err := mirror.NewRules(merged)
		if err != nil {
			t.Fatalf("%v: %v", merged, err)
		}
		image, kind, err := parse(name)
		if err != nil {
			return
		}
		for _, at := range rules.Sources(image, kind) {
			if again, _, err := parse(at.String()); err != nil || again != at || rules.Never(at) {
				t.Errorf("%v of %v: %v", at, image, err)
			}
		}
	})
}

func FuzzPullSecret(f *testing.F) {
	for _, text := range []string{
		`{"auths":{"https://index.docker.io/v1/":{"auth":"YTpi"},"quay.io/a":{"identitytoken":"x"},"*.a.io":{"username":"a","password":"b"}}}`, `{}`, `null`, `[`, `{"auths":{"":null}}`,
	} {
		f.Add([]byte(text), "quay.io", "a/b")
	}
	f.Fuzz(func(t *testing.T, data []byte, host, repository string) {
		secret, err := mirror.ParsePullSecret(data)
		if _, ok := contract.AsProblem(err); err != nil && !ok {
			t.Fatal(err)
		}
		secret.For(mirror.At(host, repository))
		for _, key := range secret.Unusable() {
			if strings.ContainsAny(key, "\n\r\x00\x1b") {
				t.Errorf("%q", key)
			}
		}
	})
}
