package conformance_test

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/log"
	"github.com/distribution/reference"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

const resolver = "127.0.0.1:9184"

func TestMain(m *testing.M) {
	if err := log.SetLevel("warn"); err != nil { // containerd explains at length what it does with localhost
		panic(err)
	}
	os.Exit(m.Run())
}

// containerd is a node's containerd with its config_path, as far as it matters for where it goes.
type containerd struct{ hosts docker.RegistryHosts }

// newContainerd writes the files for the rules to a folder and has containerd's own code read them.
func newContainerd(t *testing.T, rules mirror.Rules, known ...string) containerd {
	t.Helper()
	return newContainerdAt(t, rules, mirror.Endpoint{URL: "http://" + resolver, Token: "0123456789abcdef", Hosts: known})
}

func newContainerdAt(t *testing.T, rules mirror.Rules, endpoint mirror.Endpoint) containerd {
	t.Helper()
	files := mirror.HostsFiles(rules, endpoint)
	root := t.TempDir()
	for directory, file := range files {
		if err := os.Mkdir(filepath.Join(root, directory), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, directory, mirror.HostsFile), file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return containerd{config.ConfigureHosts(t.Context(), config.HostOptions{HostDir: config.HostDirFromRoot(root)})}
}

// places are where an image is asked for, one after the other, by what knows its digest and by what
// has only its tag.
func (c containerd) places(t *testing.T, name string) (digest, tag []string) {
	t.Helper()
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	registry := reference.Domain(named) // as it is written
	hosts, err := c.hosts(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		if toResolver := host.Host == resolver; toResolver != (host.Header.Get(mirror.TokenHeader) != "") {
			t.Fatalf("%s: the token goes to %s, or not to the resolver", registry, host.Host)
		}
		path, ok := strings.CutPrefix(host.Path, "/v2")
		if !ok || host.Scheme != "https" && host.Host != resolver && !strings.HasPrefix(registry, "localhost") {
			t.Fatalf("%s is asked at %s://%s%s", registry, host.Scheme, host.Host, host.Path)
		}
		place := host.Host + path + "/" + reference.Path(named)
		if host.Host == resolver {
			place = resolver
		}
		if host.Capabilities.Has(docker.HostCapabilityPull) {
			digest = append(digest, place)
		}
		if host.Capabilities.Has(docker.HostCapabilityPull | docker.HostCapabilityResolve) {
			tag = append(tag, place)
		}
	}
	return digest, tag
}

// TestContainerdGoesWhereItMay holds what containerd makes of the files against the rules: wherever a rule applies, it
// asks the resolver and nobody else.
func TestContainerdGoesWhereItMay(t *testing.T) {
	t.Parallel()
	g := newGenerator(t)
	for range tables / 3 {
		sets := g.objects()
		merged, _ := mirror.Merge(sets)
		rules, err := mirror.NewRules(merged)
		if err != nil {
			t.Fatal(err)
		}
		node := newContainerd(t, rules, hosts()[:g.IntN(4)]...)
		for range namesPerTable {
			image := g.name(sets)
			digest, tag := node.places(t, image)
			byTag := rules.Sources(imageOf(t, image), contract.PullByTag)
			byDigest := rules.Sources(imageOf(t, image), contract.PullByDigest)
			alone := []string{resolver}
			if changed := !slices.Equal(byTag, byDigest) || len(byTag) != 1; changed || slices.Contains(tag, resolver) {
				if !slices.Equal(digest, alone) || !slices.Equal(tag, alone) {
					t.Fatalf("%v is not asked of the resolver alone, but of %v, %v\n%s", image, digest, tag, show(sets))
				}
			}
		}
	}
}

func TestContainerdAsksTheResolverOrNobodyElse(t *testing.T) {
	t.Parallel()
	const nowhere = "another-program-has-the-port-of-the-mirror-resolver.invalid./"
	for name, c := range map[string]struct {
		sets        []mirror.Set
		image, want string
	}{
		"a whole registry":                 {[]mirror.Set{tag("quay.io", "m.io/x", "n.io:5000")}, "quay.io/a/b", resolver},
		"another repository has a mirror":  {[]mirror.Set{tag("quay.io/a", "m.io")}, "quay.io/c/b", resolver},
		"the source must not be contacted": {[]mirror.Set{never(tag("quay.io", "m.io"))}, "quay.io/a", resolver},
		"another repository must not be":   {[]mirror.Set{never(tag("quay.io/a", "m.io"))}, "ghcr.io/c", resolver},
		"Docker Hub":                       {[]mirror.Set{tag("docker.io", "m.io/hub")}, "nginx", resolver},
		"a wildcard":                       {[]mirror.Set{tag("*.example.com", "m.io")}, "a.example.com/b", resolver},
		"no rule":                          {[]mirror.Set{tag("quay.io", "m.io")}, "ghcr.io/b", "ghcr.io/b"},
		"Docker Hub without a rule":        {nil, "nginx", "registry-1.docker.io/library/nginx"},
		"the default port of a forbidden registry": {[]mirror.Set{never(tag("quay.io", "m.io"))}, "quay.io:443/a",
			resolver},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			merged, _ := mirror.Merge(c.sets)
			rules, err := mirror.NewRules(merged)
			if err != nil {
				t.Fatal(err)
			}
			digest, tag := newContainerd(t, rules).places(t, c.image)
			if !slices.Equal(digest, []string{c.want}) || !slices.Equal(tag, digest) {
				t.Errorf("by digest %v, by tag %v, not %s", digest, tag, c.want)
			}
			if c.want != resolver {
				return
			}
			_, tag = newContainerdAt(t, rules, mirror.Endpoint{}).places(t, c.image)
			if !slices.Equal(tag, []string{nowhere + imageOf(t, c.image).Path}) {
				t.Errorf("while another program has the port: %v", tag)
			}
		})
	}
}

// TestContainerdFindsTheFolder is most worth on Windows, where folders are named differently: go
// test -c, and run it there.
func TestContainerdFindsTheFolder(t *testing.T) {
	t.Parallel()
	names := []string{"quay.io", "quay.io:5000", "localhost:5000", "10.1.2.180", "10.1.2.1:80", "docker.io",
		"xn--bcher-kva.example:65535"}
	if runtime.GOOS == "windows" {
		names = append(names, "[fd00::1]:5000", "[fd00::1]", "[::1]", "[1::]")
	}
	for _, name := range names {
		merged, _ := mirror.Merge([]mirror.Set{tag(name, "m.io")})
		rules, err := mirror.NewRules(merged)
		if err != nil {
			t.Fatal(err)
		}
		digest, _ := newContainerd(t, rules).places(t, name+"/a")
		if digest[0] != resolver {
			t.Errorf("%s is asked at %v", name, digest)
		}
	}
}

func digest(source string, mirrors ...string) mirror.Set {
	set := tag(source, mirrors...)
	set.Kind = contract.PullByDigest
	return set
}

// inOrder says whether some is part of all, in its order.
func inOrder(some, all []string) bool {
	from := -1
	for _, s := range some {
		next := slices.Index(all, s)
		if next <= from {
			return false
		}
		from = next
	}
	return true
}
