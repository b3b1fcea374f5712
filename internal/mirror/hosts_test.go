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
		"whole-registry": {[]string{"digest quay.io m.io/x n.io:5000", "tag quay.io m.io/x n.io:5000"},
			endpoint()},
		"digest-and-tag-differ": {[]string{"digest quay.io m.io/x n.io", "tag quay.io n.io m.io/x t.io/y"},
			endpoint()},
		"only-digest":              {[]string{"digest quay.io m.io"}, endpoint()},
		"one-repository":           {[]string{"digest quay.io/team/app m.io/team/app"}, endpoint()},
		"registry-and-repository":  {[]string{"tag quay.io m.io", "tag quay.io/team n.io"}, endpoint()},
		"never":                    {[]string{"digest quay.io m.io/x n.io never"}, endpoint()},
		"never-for-one-repository": {[]string{"tag quay.io/team m.io never", "tag quay.io/other n.io"}, endpoint()},
		"never-and-no-mirror":      {[]string{"tag quay.io never"}, endpoint()},
		"mirror-where-never-holds": {[]string{"tag quay.io/secret m.io never", "tag ghcr.io quay.io n.io"},
			endpoint()},
		"docker-hub": {[]string{"tag docker.io m.io/hub", "digest docker.io m.io/hub",
			"tag quay.io docker.io docker.io/cache"}, endpoint()},
		"wildcard": {[]string{"tag *.example.com m.io/x", "tag a.example.com/team n.io"},
			with(func(e *mirror.Endpoint) { e.Hosts = []string{"b.example.com", "c.example.com:5000"} })},
		"wildcard-never": {[]string{"tag *.example.com m.io never"},
			with(func(e *mirror.Endpoint) { e.Hosts = []string{"mcr.microsoft.com", "a.example.com"} })},
		"ports-and-addresses": {[]string{"tag quay.io:5000 m.io", "tag 10.1.2.180 m.io", "tag 10.1.2.1:80 m.io",
			"tag [fd00::1]:5000 m.io", "tag localhost:5000 m.io"}, endpoint()},
		"addresses-that-look-alike": {[]string{"tag [fd00::12]:5000 m.io", "tag [fd00::1:2]:5000 n.io never",
			"tag [::1] m.io", "tag [1::] m.io"}, endpoint()},
		"cas": {[]string{"tag quay.io m.io"}, with(func(e *mirror.Endpoint) {
			e.CAs = map[string]string{"quay.io": `C:\k\trust\quay's.pem`, "m.io": `C:\k\trust\m.pem`,
				"z.io:5000": `C:\z.pem`, "10.0.0.1": `C:\t.pem`}
		})},
		"hosts-of-the-pull-secret": {nil, with(func(e *mirror.Endpoint) {
			e.Hosts = []string{"registry.redhat.io", "docker.io", "../evil", "nul.io", "a/b"}
		})},
		"source-before-its-mirrors":   {[]string{"tag quay.io quay.io m.io"}, endpoint()},
		"mirror-below-its-own-source": {[]string{"tag quay.io quay.io/cache m.io never"}, endpoint()},
		"nothing":                     {nil, endpoint()},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			files, err := mirror.HostsFiles(rulesOf(t, c.rules...), c.endpoint)
			if err != nil {
				t.Fatal(err)
			}
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

func TestEndpointsThatAreRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*mirror.Endpoint){
		"no URL":               func(e *mirror.Endpoint) { e.URL = "" },
		"no port":              func(e *mirror.Endpoint) { e.URL = "http://127.0.0.1" },
		"a path":               func(e *mirror.Endpoint) { e.URL += "/v2" },
		"TLS":                  func(e *mirror.Endpoint) { e.URL = "https://127.0.0.1:9184" },
		"no token":             func(e *mirror.Endpoint) { e.Token = "" },
		"a token of two lines": func(e *mirror.Endpoint) { e.Token = "a\r\nb" },
	} {
		e := endpoint()
		change(&e)
		if files, err := mirror.HostsFiles(mirror.Rules{}, e); err == nil {
			t.Errorf("%s: %v", name, files)
		} else if strings.Contains(err.Error(), "0123456789abcdef") {
			t.Errorf("%s: the error shows the token: %v", name, err)
		}
	}
}

// contacted is a server that containerd would ask, as its own reader of hosts.toml sees it.
type contacted struct {
	host, path    string
	pull, resolve bool
	resolver      bool
}

// contacts reads what containerd would, in its order: the host tables as they stand in the file,
// then the server.
func contacts(tb testing.TB, file []byte, registry string) []contacted {
	tb.Helper()
	type table struct {
		Server       *string
		Capabilities []string
		OverridePath bool `toml:"override_path"`
		Header       map[string][]string
	}
	var all struct {
		table
		Host map[string]table
	}
	if err := toml.Unmarshal(file, &all); err != nil {
		tb.Fatalf("%v in\n%s", err, file)
	}
	var list []contacted
	add := func(server string, at table) {
		_, rest, _ := strings.Cut(server, "://")
		host, path, _ := strings.Cut(strings.TrimRight(rest, "/"), "/")
		path = strings.Trim(strings.TrimPrefix(path, "v2"), "/")
		c := contacted{host, path, len(at.Capabilities) == 0 ||
			slices.Contains(at.Capabilities, "pull"), len(at.Capabilities) == 0 ||
			slices.Contains(at.Capabilities, "resolve"), at.Header != nil}
		if c.resolver != (host == "127.0.0.1:9184") {
			tb.Fatalf("the token goes to %s, or not to the resolver:\n%s", host, file)
		}
		list = append(list, c)
	}
	for line := range strings.Lines(string(file)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "[host.'"); ok &&
			!strings.HasSuffix(name, "header]") {
			name = strings.TrimSuffix(name, "']")
			add(name, all.Host[name])
		}
	}
	if len(list) != len(all.Host) {
		tb.Fatalf("%d of %d hosts seen in\n%s", len(list), len(all.Host), file)
	}
	if all.Server == nil {
		add("https://"+registry, all.table)
	} else {
		add(*all.Server, all.table)
	}
	return list
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

// TestContainerdBreaksNoRuleWhenTheResolverIsDown looks at random rules and images: what containerd
// would ask by itself must be allowed for that image, and be in order.
func TestContainerdBreaksNoRuleWhenTheResolverIsDown(t *testing.T) {
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
		if err != nil {
			t.Fatal(err)
		}
		e := endpoint()
		e.Hosts = hosts[:random.IntN(3)]
		files, err := mirror.HostsFiles(rules, e)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			for _, repository := range repositories {
				image := mirror.Reference{Host: host, Repository: repository}
				direct += checkFallback(t, rules, image, lookup(files, host), merged)
			}
		}
	}
	if direct < 500 {
		t.Errorf("only %d images could be pulled from a mirror without the resolver: the rules say too little", direct)
	}
}

// TestNobodyIsSentToWhoHasTheResolversPort: another program must get neither pulls nor the token.
// What remains is what containerd would do with the resolver down, or nothing.
func TestNobodyIsSentToWhoHasTheResolversPort(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	nowhere, somewhere := 0, 0
	for range 300 {
		merged, _ := mirror.Merge(randomSets(random))
		rules, err := mirror.NewRules(merged)
		if err == nil && random.IntN(3) == 0 {
			rules, err = rules.Restrict(contract.RegistrySources{Blocked: []string{"quay.io/a"}})
		}
		if err != nil {
			t.Fatal(err)
		}
		e := endpoint()
		e.Hosts = []string{"mcr.microsoft.com", "10.1.2.180"}
		usual, err := mirror.HostsFiles(rules, e)
		if err != nil {
			t.Fatal(err)
		}
		e = mirror.Endpoint{Hosts: e.Hosts, Taken: true}
		files, err := mirror.HostsFiles(rules, e)
		if err != nil || !slices.Equal(slices.Sorted(maps.Keys(files)), slices.Sorted(maps.Keys(usual))) {
			t.Fatal(err, len(files), len(usual))
		}
		for directory, file := range files {
			if bytes.Contains(file, []byte("9184")) || bytes.Contains(file, []byte(mirror.TokenHeader)) {
				t.Fatalf("%s:\n%s", directory, file)
			}
			want, got := contacts(t, usual[directory], "any.io")[1:], contacts(t, file, "any.io")
			switch {
			case len(want) == 0 && len(got) == 1 && strings.HasSuffix(got[0].host, ".invalid."):
				nowhere++
			case len(want) > 0 && slices.Equal(got, want):
				somewhere++
			default:
				t.Fatalf("%s: %v, with the resolver %v\n%s", directory, got, want, file)
			}
		}
	}
	if nowhere < 50 || somewhere < 50 {
		t.Errorf("%d and %d files are too few to say much", nowhere, somewhere)
	}
}

// TestNoSpellingLeadsAroundTheResolver is about names that have no folder of their own, such as one
// with a zero before its port, which is the same registry for containerd.
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
			files, err := mirror.HostsFiles(rulesOf(t, rules...), e)
			if err != nil {
				t.Fatal(err)
			}
			for _, host := range []string{"quay.io:0443", "quay.io:00443", "quay.io", "quay.io:443"} {
				file := lookup(files, host)
				if file == nil {
					t.Errorf("%s has no file", host)
					continue
				}
				for _, c := range contacts(t, file, host) {
					if !c.resolver && c.host != "m.io" {
						t.Errorf("%s is asked at %v", host, c)
					}
				}
			}
			images := contacts(t, lookup(files, "mcr.microsoft.com"), "mcr.microsoft.com")
			if last := images[len(images)-1]; !images[0].resolver || last.host != "mcr.microsoft.com" {
				t.Errorf("what every pod needs is asked at %v", images)
			}
		})
	}
}

func checkFallback(t *testing.T, rules mirror.Rules, image mirror.Reference, file []byte,
	merged []contract.MirrorRule) (direct int) {
	t.Helper()
	image.Kind = contract.PullByTag
	byTag := addresses(rules.Sources(image))
	image.Kind = contract.PullByDigest
	byDigest := addresses(rules.Sources(image))
	if file == nil {
		if !slices.Equal(byTag, byDigest) || len(byTag) != 1 {
			t.Fatalf("%v has no file, but %v and %v as sources", image, byTag, byDigest)
		}
		return 0
	}
	list := contacts(t, file, mirror.Pull{Host: image.Host}.Address())
	if !list[0].resolver {
		t.Fatalf("%v: the resolver does not come first:\n%s", image, file)
	}
	repository := image.Repository
	if image.Host == "docker.io" && !strings.Contains(repository, "/") {
		repository = "library/" + repository // as containerd asks
	}
	var tag, digest []string
	for _, c := range list[1:] {
		place := c.host + "/" + strings.Trim(c.path+"/"+repository, "/")
		if c.resolver || !c.pull {
			t.Fatalf("%v: %v makes no sense in\n%s", image, c, file)
		}
		// The source may come twice: where the user has it among its mirrors, and as the last.
		if c.resolve && !slices.Contains(tag, place) {
			tag = append(tag, place)
		}
		if !slices.Contains(digest, place) {
			digest = append(digest, place)
		}
	}
	if !inOrder(tag, byTag) {
		t.Fatalf("%v by tag: %v, allowed are %v\n%v\n%s", image, tag, byTag, merged, file)
	}
	// By digest a tag mirror may come after all digest mirrors.
	onlyTag := func(place string) bool { return !slices.Contains(byDigest, place) }
	if rest := slices.DeleteFunc(slices.Clone(digest), onlyTag); !inOrder(rest, byDigest) ||
		!inOrder(slices.DeleteFunc(digest, func(place string) bool { return !onlyTag(place) }), byTag) {
		t.Fatalf("%v by digest: %v, allowed are %v\n%v\n%s", image, digest, byDigest, merged, file)
	}
	return max(len(tag)-1, 0)
}

func addresses(pulls []mirror.Pull) []string {
	all := []string{}
	for _, p := range pulls {
		all = append(all, p.Address()+"/"+p.Repository)
	}
	return all
}

// inOrder says whether some is part of all, in its order.
func inOrder(some, all []string) bool {
	at := -1
	for _, s := range some {
		next := slices.Index(all, s)
		if next <= at {
			return false
		}
		at = next
	}
	return true
}
