package mirror_test

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

var update = flag.Bool("update", false, "write the golden files anew")

func endpoint() mirror.Endpoint {
	return mirror.Endpoint{URL: "http://127.0.0.1:9184", Token: "0123456789abcdef"}
}

// TestHostsFiles compares with testdata/<case>.toml, which has all files of a case one after the
// other.
func TestHostsFiles(t *testing.T) {
	t.Parallel()
	with := func(change func(*mirror.Endpoint)) mirror.Endpoint {
		e := endpoint()
		change(&e)
		return e
	}
	for name, c := range map[string]struct {
		rules    []string
		endpoint mirror.Endpoint
	}{
		"a-registry":               {[]string{"digest quay.io m.io/x n.io:5000", "tag quay.io m.io/x n.io:5000"}, endpoint()},
		"never-for-one-repository": {[]string{"tag quay.io/team m.io never", "tag quay.io/other n.io"}, endpoint()},
		"docker-hub": {[]string{"tag docker.io m.io/hub", "digest docker.io m.io/hub",
			"tag quay.io docker.io docker.io/cache"}, endpoint()},
		"wildcard": {[]string{"tag *.example.com m.io/x", "tag a.example.com/team n.io"},
			with(func(e *mirror.Endpoint) { e.Hosts = []string{"b.example.com", "c.example.com:5000"} })},
		"ports-and-addresses": {[]string{"tag quay.io:5000 m.io", "tag 10.1.2.180 m.io", "tag 10.1.2.1:80 m.io",
			"tag [fd00::1]:5000 m.io", "tag localhost:5000 m.io"}, endpoint()},
		"addresses-that-look-alike": {[]string{"tag [fd00::12]:5000 m.io", "tag [fd00::1:2]:5000 n.io never",
			"tag [::1] m.io", "tag [1::] m.io"}, endpoint()},
		"hosts-of-the-pull-secret": {nil, with(func(e *mirror.Endpoint) {
			e.Hosts = []string{"registry.redhat.io", "docker.io", "../evil", "nul.io", "a/b"}
		})},
		"another-program-has-the-port": {[]string{"tag quay.io m.io"}, mirror.Endpoint{}},
		"nothing":                      {nil, endpoint()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files := mirror.HostsFiles(rulesOf(t, c.rules...), c.endpoint)
			got := bytes.NewBufferString("# " + strings.Join(c.rules, "\n# ") + "\n")
			for _, directory := range slices.Sorted(maps.Keys(files)) {
				fmt.Fprintf(got, "\n##### %s\\hosts.toml\n%s", directory, files[directory])
			}
			golden := filepath.Join("testdata", name+".toml")
			if *update {
				if err := os.WriteFile(golden, got.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// server is the only server that containerd asks by a file.
func server(tb testing.TB, file []byte) string {
	tb.Helper()
	var all map[string]any
	if err := toml.Unmarshal(file, &all); err != nil {
		tb.Fatalf("%v in\n%s", err, file)
	}
	at, _ := all["server"].(string)
	if _, others := all["host"]; others || at == "" || (at == endpoint().URL) != (all["header"] != nil) {
		tb.Fatalf("it asks others, or the token goes to another than the resolver:\n%s", file)
	}
	return at
}

// lookup finds the file as containerd on Windows does.
func lookup(files map[string][]byte, host string) []byte {
	names := []string{strings.ReplaceAll(host, ":", ""), "_default"}
	if colon := strings.LastIndexByte(host, ':'); colon > 0 {
		names = slices.Insert(names, 0, strings.ReplaceAll(host[:colon]+"_"+host[colon+1:]+"_", ":", ""))
	}
	for _, name := range names {
		if file, ok := files[name]; ok {
			return file
		}
	}
	return nil
}

// TestContainerdAsksTheResolverAlone tests random rules and images: if a rule changes where an image comes from,
// containerd must ask only the resolver. If another program has the resolver's port, containerd must ask no server
// at all.
func TestContainerdAsksTheResolverAlone(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	hosts := []string{"quay.io", "quay.io:443", "docker.io", "a.example.com", "x.a.example.com:5000", "10.1.2.180",
		"10.1.2.1:80", "[fd00::1]:5000", "[fd00::1]", "mcr.microsoft.com", "[f::d001]:5000"}
	repositories := []string{"a", "a/b", "a/b/c", "ab", "library/nginx"}
	direct := 0
	for range 800 {
		merged, _ := mirror.Merge(randomSets(random))
		rules, err := mirror.NewRules(merged)
		if err == nil && random.IntN(3) == 0 {
			rules, err = rules.Restrict(contract.RegistrySources{Blocked: []string{"quay.io/a"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		e := endpoint()
		taken := random.IntN(3) == 0
		if taken {
			e.URL, e.Token = "", ""
		}
		e.Hosts = hosts[:random.IntN(3)]
		files := mirror.HostsFiles(rules, e)
		for directory, file := range files {
			if at := server(t, file); (at == endpoint().URL) == taken || taken && !strings.HasSuffix(at, ".invalid.") {
				t.Fatalf("%s leads to %s", directory, at)
			}
		}
		for _, host := range hosts {
			for _, repository := range repositories {
				image := mirror.At(host, repository)
				byTag := rules.Sources(image, contract.PullByTag)
				if byDigest := rules.Sources(image, contract.PullByDigest); lookup(files, host) == nil {
					if direct++; !slices.Equal(byTag, byDigest) || len(byTag) != 1 {
						t.Fatalf("%v has no file, but %v and %v as sources", image, byTag, byDigest)
					}
				}
			}
		}
	}
	if direct < 500 {
		t.Errorf("only %d images have no rule: the rules say too much", direct)
	}
}

// TestNoSpellingLeadsAroundTheResolver tests names without their own folder, such as a name with a zero before its
// port, which containerd treats as the same registry.
func TestNoSpellingLeadsAroundTheResolver(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]string{
		"a registry":           {"tag quay.io m.io never"},
		"a namespace":          {"tag quay.io/team m.io never", "tag ghcr.io n.io"},
		"the default port":     {"tag quay.io:443 m.io never"},
		"a domain":             {"tag *.io m.io never"},
		"a registry, no place": {"digest quay.io never"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := endpoint()
			e.Hosts = []string{"quay.io:8443", "quay.io"}
			files := mirror.HostsFiles(rulesOf(t, rules...), e)
			for _, host := range []string{"quay.io:0443", "quay.io:00443", "quay.io", "quay.io:443", "mcr.microsoft.com"} {
				if file := lookup(files, host); file == nil || server(t, file) != e.URL {
					t.Errorf("%s has the file %q", host, file)
				}
			}
		})
	}
}
