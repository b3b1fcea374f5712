package mirror_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// digests returns one set for each list. Each set comes from a different object and has digest mirrors of the same
// source.
func digests(source string, lists ...[]string) []mirror.Set {
	var sets []mirror.Set
	for i, list := range lists {
		sets = append(sets, mirror.Set{Object: fmt.Sprintf("ImageDigestMirrorSet/%d", i), Kind: contract.PullByDigest,
			Source: source, Mirrors: list})
	}
	return sets
}

func TestMirrorsOfSeveralObjectsBecomeOneList(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lists [][]string
		want  []string
	}{
		"one object keeps its order": {[][]string{{"z.io", "a.io", "m.io/x"}},
			[]string{"z.io", "a.io", "m.io/x"}},
		"the example of the documentation": {[][]string{{"a.io", "b.io", "c.io"}, {"c.io", "d.io", "e.io"}},
			[]string{"a.io", "b.io", "c.io", "d.io", "e.io"}},
		"a list that leads into another": {[][]string{{"b.io", "c.io"}, {"a.io", "b.io"}},
			[]string{"a.io", "b.io", "c.io"}},
		"unrelated lists take turns by name": {[][]string{{"b.io", "d.io"}, {"a.io", "c.io"}},
			[]string{"a.io", "b.io", "c.io", "d.io"}},
		"what became possible earlier goes first": {[][]string{{"b.io", "a.io"}, {"c.io"}},
			[]string{"b.io", "c.io", "a.io"}},
		"an element between two others": {[][]string{{"a.io", "c.io"}, {"a.io", "b.io"}, {"b.io", "c.io"}},
			[]string{"a.io", "b.io", "c.io"}},
		"the same list twice": {[][]string{{"b.io", "a.io"}, {"b.io", "a.io"}},
			[]string{"b.io", "a.io"}},
		"one mirror twice in a list": {[][]string{{"b.io", "a.io", "b.io"}}, []string{"b.io", "a.io"}},
		"contradiction": {[][]string{{"b.io", "a.io"}, {"a.io", "b.io"}},
			[]string{"a.io", "b.io"}},
		"contradiction behind what is clear": {[][]string{{"x.io", "b.io", "a.io"}, {"a.io", "b.io"}},
			[]string{"x.io", "a.io", "b.io"}},
		"contradiction in a circle of three": {[][]string{{"c.io", "a.io"}, {"a.io", "b.io"}, {"b.io", "c.io"}},
			[]string{"a.io", "b.io", "c.io"}},
		"host names in another case are the same": {[][]string{{"B.IO", "a.io"}, {"b.io", "C.io/x"}},
			[]string{"b.io", "a.io", "c.io/x"}},
		"the source before a mirror stays there": {[][]string{{"b.io", "quay.io/team", "a.io"}},
			[]string{"b.io", "quay.io/team", "a.io"}},
		"the source in the end is left to the rule": {[][]string{{"b.io", "quay.io/team"}}, []string{"b.io"}},
		"the source before a mirror of one list": {[][]string{{"quay.io/team", "c.io"}, {"b.io"}},
			[]string{"b.io", "quay.io/team", "c.io"}},
		"ports and IPv6 addresses are part of names": {[][]string{{"a.io:5000/x", "[fd00::1]:5000", "a.io/x"}},
			[]string{"a.io:5000/x", "[fd00::1]:5000", "a.io/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, rejected := mirror.Merge(digests("quay.io/team", c.lists...))
			want := []contract.MirrorRule{{Source: "quay.io/team", Kind: contract.PullByDigest, Mirrors: c.want}}
			if diff := cmp.Diff(want, rules); diff != "" || rejected != nil {
				t.Errorf("rejected %v, -want +got:\n%s", rejected, diff)
			}
		})
	}
}

func TestPolicies(t *testing.T) {
	t.Parallel()
	digest := func(policy mirror.Policy, mirrors ...string) mirror.Set {
		return mirror.Set{Object: "ImageDigestMirrorSet/d", Kind: contract.PullByDigest, Source: "quay.io",
			Mirrors: mirrors, Policy: policy}
	}
	tag := func(policy mirror.Policy, mirrors ...string) mirror.Set {
		return mirror.Set{Object: "ImageTagMirrorSet/t", Kind: contract.PullByTag, Source: "Quay.io", Mirrors: mirrors,
			Policy: policy}
	}
	rule := func(kind contract.PullKind, never bool, mirrors ...string) contract.MirrorRule {
		return contract.MirrorRule{Source: "quay.io", Kind: kind, Mirrors: mirrors, NeverContactSource: never}
	}
	for name, c := range map[string]struct {
		sets     []mirror.Set
		want     []contract.MirrorRule
		rejected int
	}{
		"unset allows": {[]mirror.Set{digest("", "a.io")}, []contract.MirrorRule{rule("digest", false, "a.io")}, 0},
		"allowed": {[]mirror.Set{digest(mirror.AllowContactingSource, "a.io")},
			[]contract.MirrorRule{rule("digest", false, "a.io")}, 0},
		"never": {[]mirror.Set{digest(mirror.NeverContactSource, "a.io")},
			[]contract.MirrorRule{rule("digest", true, "a.io")}, 0},
		"an unknown policy counts as the stricter one and is reported": {[]mirror.Set{digest("Sometimes", "a.io")},
			[]contract.MirrorRule{rule("digest", true, "a.io")}, 1},
		"never wins between objects": {
			[]mirror.Set{digest(mirror.AllowContactingSource, "a.io"), digest(mirror.NeverContactSource, "b.io")},
			[]contract.MirrorRule{rule("digest", true, "a.io", "b.io")}, 0,
		},
		"never wins between kinds": {
			[]mirror.Set{digest(mirror.AllowContactingSource, "a.io"), tag(mirror.NeverContactSource, "b.io")},
			[]contract.MirrorRule{rule("digest", true, "a.io"), rule("tag", true, "b.io")}, 0,
		},
		"no mirrors, no rule": {[]mirror.Set{digest("")}, nil, 0},
		"no mirrors, no policy": {[]mirror.Set{digest(mirror.NeverContactSource),
			tag("", "a.io")}, []contract.MirrorRule{rule("tag", false, "a.io")}, 1},
		"a mirror that is the source does not count": {[]mirror.Set{digest(mirror.NeverContactSource, "quay.io")},
			nil, 1},
		"never applies although every mirror is invalid": {[]mirror.Set{digest(mirror.NeverContactSource,
			"https://a.io")}, []contract.MirrorRule{rule("digest", true)}, 1},
		"a rule stays though its mirror is unusable": {[]mirror.Set{digest("", "a.io:0")},
			[]contract.MirrorRule{rule("digest", false)}, 1},
		"the other mirrors stay when one is unusable": {[]mirror.Set{digest("", "b.io", "A B", "a.io")},
			[]contract.MirrorRule{rule("digest", false, "b.io", "a.io")}, 1},
		"nothing": {nil, nil, 0},
		"the same complaint of one object is made once": {[]mirror.Set{digest("", "a b"), digest("", "a b")},
			[]contract.MirrorRule{rule("digest", false)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rules, rejected := mirror.Merge(c.sets)
			if len(rules) != len(c.want) || len(rejected) != c.rejected {
				t.Fatalf("got %v, rejected %v", rules, rejected)
			}
			for i := range rules {
				if !slices.Equal(rules[i].Mirrors, c.want[i].Mirrors) || rules[i].Source != c.want[i].Source ||
					rules[i].Kind != c.want[i].Kind ||
					rules[i].NeverContactSource != c.want[i].NeverContactSource {
					t.Errorf("got %v, want %v", rules[i], c.want[i])
				}
			}
		})
	}
}

// hostile returns texts that must not be accepted as a mirror or, except where noted, as a source.
func hostile() map[string]struct{ text, why string } {
	return map[string]struct{ text, why string }{
		"nothing":                      {"", "empty"},
		"a space":                      {" ", "is not a host"},
		"a scheme":                     {"https://quay.io/a", "scheme"},
		"a digest":                     {"quay.io/a@sha256:00", "digest"},
		"a user name":                  {"user:pass@quay.io", "user name"},
		"a tag":                        {"quay.io/a:latest", "repository"},
		"no dot":                       {"quay/a", "neither a dot nor a port"},
		"a slash in front":             {"/quay.io/a", "is not a host"},
		"a slash at the end":           {"quay.io/a/", "empty part"},
		"two slashes":                  {"quay.io//a", "empty part"},
		"traversal":                    {"quay.io/../../../Windows/System32", "repository"},
		"traversal in the host":        {`..\..\..\Windows`, "is not a host"},
		"traversal with a port":        {"../..:5000/x", "is not a host"},
		"a drive":                      {`C:\Windows`, "is not a host"},
		"a device path":                {`\\.\pipe\x.io`, "is not a host"},
		"a stream of a file":           {"quay.io::$DATA", "is not a host"},
		"a port of zero":               {"quay.io:0/a", "is not a port"},
		"a port too high":              {"quay.io:65536/a", "is not a port"},
		"a port with zeros in front":   {"quay.io:0443/a", "is not a port"},
		"a port with a sign":           {"quay.io:+443/a", "is not a host"},
		"an empty port":                {"quay.io:/a", "is not a host"},
		"a port of letters":            {"quay.io:https/a", "is not a host"},
		"IPv6 without brackets":        {"fd00::1/a", "brackets"},
		"IPv6 with a zone":             {"[fe80::1%eth0]:5000/a", "IPv6"},
		"IPv4 in IPv6":                 {"[::ffff:10.0.0.1]/a", "IPv6"},
		"IPv6 left open":               {"[fd00::1/a", "IPv6"},
		"text after IPv6":              {"[fd00::1]x/a", "is not a host"},
		"no IPv6 in brackets":          {"[quay.io]:5000", "IPv6"},
		"an asterisk within":           {"quay.*.io/a", "is not a host"},
		"an asterisk as a name":        {"*/a", "is not a host"},
		"an asterisk in the path":      {"quay.io/*", "repository"},
		"a question mark":              {"quay.io/a?ns=x", "repository"},
		"a percent sign":               {"quay.io/%2e%2e", "repository"},
		"a capital in the path":        {"quay.io/Team", "capital"},
		"an underscore in the host":    {"qu_ay.io/a", "is not a host"},
		"a hyphen in front":            {"-quay.io", "hyphen"},
		"a hyphen before a dot":        {"quay-.io", "hyphen"},
		"two dots in the host":         {"quay..io", "is not a host"},
		"a dot at the end of the host": {"quay.io./a", "is not a host"},
		"three underscores":            {"quay.io/a___b", "repository"},
		"two dots in the path":         {"quay.io/a..b", "repository"},
		"a separator in the end":       {"quay.io/a-", "repository"},
		"a separator in front":         {"quay.io/_a", "repository"},
		"separators mixed":             {"quay.io/a_-b", "repository"},
		"the end of a line":            {"quay.io/a\n[host]", "repository"},
		"TOML in the host": {"quay.io'\n[host.'https://evil.example",
			"more than one colon|character|scheme"},
		"TOML in the path":                 {"quay.io/a\"]\nserver = \"x", "repository"},
		"NUL":                              {"quay.io\x00.evil.example", "is not a host"},
		"a bell":                           {"quay.io/\a", "repository"},
		"text that runs backwards":         {"quay.io/\u202emoc", "repository"},
		"letters that only look alike":     {"quаy.io/a", "is not a host"},
		"bytes that are no text":           {"quay.io/\xff\xfe", "repository"},
		"a part of the host that is long":  {strings.Repeat("a", 64) + ".io", "63"},
		"a host that is long":              {strings.Repeat("abcdefg.", 32) + "io", "253"},
		"a path that is long":              {"quay.io/" + strings.Repeat("a", 256), "255"},
		"a megabyte":                       {"quay.io/" + strings.Repeat("a/", 1<<19), "more than"},
		"a megabyte without any separator": {strings.Repeat("a", 1<<20), "more than"},
	}
}

func TestHostileTextIsRejectedWithAReason(t *testing.T) {
	t.Parallel()
	onlySource := map[string]struct{ text, why string }{
		"a wildcard with a port":      {"*.example.com:5000", "neither port nor path"},
		"a wildcard with a path":      {"*.example.com/team", "neither port nor path"},
		"a wildcard for everything":   {"*", "is not a host"},
		"a wildcard without a domain": {"*.", "is not a host"},
		"a wildcard below a wildcard": {"*.*.example.com", "is not a host"},
		"a wildcard that is hostile":  {"*.example.com\n[host]", "is not a host"},
	}
	onlyMirror := map[string]struct{ text, why string }{
		"a wildcard":                    {"*.example.com", "only a source"},
		"the resolver":                  {"127.0.0.1:9184/x", "resolver"},
		"the resolver by name":          {"LOCALHOST:9184", "resolver"},
		"the resolver in IPv6":          {"[::1]:9184", "resolver"},
		"the resolver at its other end": {"127.8.9.10:9184", "resolver"},
	}
	check := func(name, text, why string, set mirror.Set) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set.Object, set.Kind = "ImageDigestMirrorSet/"+name, contract.PullByDigest
			rules, rejected := mirror.Merge([]mirror.Set{set})
			for _, rule := range rules {
				if rule.Source == text || slices.Contains(rule.Mirrors, text) {
					t.Errorf("the text became a rule: %v", rule)
				}
			}
			if len(rejected) != 1 {
				t.Fatalf("rejected: %v", rejected)
			}
			if !slices.ContainsFunc(strings.Split(why, "|"),
				func(part string) bool { return strings.Contains(rejected[0].Detail, part) }) {
				t.Errorf("the reason %q lacks %q", rejected[0].Detail, why)
			}
			problem := rejected[0]
			if problem.Reason != contract.ReasonMirrorRejected || !strings.Contains(problem.Detail, set.Object) {
				t.Errorf("%v", problem)
			}
			if len(problem.Detail) > 2000 ||
				strings.ContainsFunc(problem.Detail, func(r rune) bool { return r < ' ' || r == '\u202e' }) {
				t.Errorf("the message has characters that can't be shown: %q", problem.Detail)
			}
		})
	}
	for name, c := range hostile() {
		check(name+" as a source", c.text, c.why, mirror.Set{Source: c.text, Mirrors: []string{"a.io"}})
		if c.text != "" {
			check(name+" as a mirror", c.text, c.why, mirror.Set{Source: "quay.io", Mirrors: []string{c.text}})
		}
	}
	for name, c := range onlySource {
		check(name+" as a source", c.text, c.why, mirror.Set{Source: c.text, Mirrors: []string{"a.io"}})
	}
	for name, c := range onlyMirror {
		check(name+" as a mirror", c.text, c.why, mirror.Set{Source: "quay.io", Mirrors: []string{c.text}})
	}
}

func TestWhatUsersMayWrite(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"quay.io": "quay.io", "QUAY.io/a": "quay.io/a", "localhost": "localhost",
		"localhost:5000/a": "localhost:5000/a", "registry:5000": "registry:5000",
		"10.0.0.1/a": "10.0.0.1/a", "[FD00::1]:5000/a": "[fd00::1]:5000/a", "[::1]": "[::1]",
		"a-b.c--d.io:65535":        "a-b.c--d.io:65535",
		"quay.io/a.b_c__d-e---f/0": "quay.io/a.b_c__d-e---f/0", "xn--bcher-kva.example/x": "xn--bcher-kva.example/x",
		"*.Example.com": "*.example.com", "*.io": "*.io", "NUL.example.com:5000": "nul.example.com:5000",
	} {
		rules, rejected := mirror.Merge([]mirror.Set{{Object: "o", Kind: contract.PullByTag, Source: text,
			Mirrors: []string{"m.io"}}})
		if len(rejected) > 0 || len(rules) != 1 || rules[0].Source != want {
			t.Errorf("%s: %v, rejected %v", text, rules, rejected)
		}
		if strings.HasPrefix(text, "*") {
			continue
		}
		rules, rejected = mirror.Merge([]mirror.Set{{Object: "o", Kind: contract.PullByTag, Source: "s.io",
			Mirrors: []string{text}}})
		if len(rejected) > 0 || len(rules) != 1 || rules[0].Mirrors[0] != want {
			t.Errorf("%s as a mirror: %v, rejected %v", text, rules, rejected)
		}
	}
}

// TestMergeDoesNotDependOnTheOrderOfObjects also checks that every object's order is kept if that is possible.
func TestMergeDoesNotDependOnTheOrderOfObjects(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		sets := randomSets(random)
		rules, rejected := mirror.Merge(sets)
		for range 3 {
			random.Shuffle(len(sets), func(i, j int) { sets[i], sets[j] = sets[j], sets[i] })
			again, rejectedAgain := mirror.Merge(sets)
			if diff := cmp.Diff(rules, again) + cmp.Diff(rejected, rejectedAgain); diff != "" {
				t.Fatalf("%v\n%s", sets, diff)
			}
		}
		if _, err := mirror.NewRules(rules); err != nil {
			t.Fatalf("%v: %v", rules, err)
		}
	}
}

func TestEveryObjectsOrderIsKeptIfTheyAgree(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 500 {
		// All lists are parts of one list, so their orders don't contradict each other.
		all := make([]string, 8)
		for i, n := range random.Perm(len(all)) {
			all[i] = fmt.Sprintf("m%d.io/x", n)
		}
		var lists [][]string
		for range 1 + random.IntN(6) {
			list := slices.DeleteFunc(slices.Clone(all), func(string) bool { return random.IntN(2) == 0 })
			lists = append(lists, append(list, "last.io"))
		}
		rules, _ := mirror.Merge(digests("quay.io", lists...))
		for _, list := range lists {
			at := -1
			for _, m := range list {
				next := slices.Index(rules[0].Mirrors, m)
				if next <= at {
					t.Fatalf("the order of %v (from %v) is not kept in %v", list, lists, rules[0].Mirrors)
				}
				at = next
			}
		}
	}
}

func TestAThousandEntries(t *testing.T) {
	t.Parallel()
	var sets []mirror.Set
	for i := range 1000 {
		var mirrors []string
		for m := range 20 {
			mirrors = append(mirrors, fmt.Sprintf("m%d.example:5000/cache/%d", m, i%10))
		}
		sets = append(sets, mirror.Set{
			Object: "ImageTagMirrorSet/many", Kind: contract.PullByTag,
			Source: fmt.Sprintf("quay.io/team-%d/repository", i), Mirrors: mirrors,
		}, mirror.Set{Object: "ImageTagMirrorSet/one", Kind: contract.PullByTag, Source: "quay.io",
			Mirrors: mirrors[i%20:]})
	}
	rules, rejected := mirror.Merge(sets)
	if len(rules) != 1001 || rejected != nil || len(rules[0].Mirrors) != 155 {
		t.Errorf("%d rules, %d rejected", len(rules), len(rejected))
	}
}

// randomSets returns random combinations of a few names, some of them invalid.
func randomSets(random *rand.Rand) []mirror.Set {
	pick := func(all ...string) string { return all[random.IntN(len(all))] }
	var sets []mirror.Set
	for range random.IntN(12) {
		set := mirror.Set{
			Object: pick("a", "b", "c"), Kind: contract.PullKind(pick("digest", "tag")),
			Policy: mirror.Policy(pick("", "", string(mirror.NeverContactSource))),
			Source: pick("quay.io", "quay.io/a", "quay.io/a/b", "docker.io", "docker.io/library", "*.example.com",
				"*.a.example.com", "x.a.example.com:5000", "10.1.2.180", "[fd00::1]:5000",
				"[fd00::1]", "bad/", "nul.io"),
		}
		for range random.IntN(5) {
			set.Mirrors = append(set.Mirrors,
				pick("m.io", "m.io/x", "n.io:5000", "n.io:5000/x/y", "quay.io", "quay.io/a", "docker.io",
					"docker.io/cache", "[fd00::2]:443/z", "bad host", "o.example.com"))
		}
		sets = append(sets, set)
	}
	return sets
}
