package conformance_test

import (
	"os"
	"path/filepath"
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
	if err := log.SetLevel("warn"); err != nil { // containerd logs a lot about localhost
		panic(err)
	}
	os.Exit(m.Run())
}

// containerd is the part of a node's containerd that chooses registries, with the node's config_path.
type containerd struct{ hosts docker.RegistryHosts }

// newContainerd lets containerd's own code read hosts.toml. An empty url means that another program uses the resolver's
// port.
func newContainerd(t *testing.T, url string) containerd {
	t.Helper()
	root := t.TempDir()
	// The path is relative to contract.DirRegistries.
	path := filepath.Join(root, filepath.FromSlash(strings.ReplaceAll(
		contract.PathHosts[len(contract.DirRegistries):], `\`, "/")))
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(mirror.HostsFile(url, "0123456789abcdef")), 0o600); err != nil {
		t.Fatal(err)
	}
	return containerd{config.ConfigureHosts(t.Context(), config.HostOptions{HostDir: config.HostDirFromRoot(root)})}
}

// places returns the hosts that containerd contacts for an image, in order: for a pull by digest and for a pull by tag.
func (c containerd) places(t *testing.T, name string) (digest, tag []string) {
	t.Helper()
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		t.Fatal(err)
	}
	registry := reference.Domain(named) // in the form that the user wrote
	hosts, err := c.hosts(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range hosts {
		if toResolver := host.Host == resolver; toResolver != (host.Header.Get(mirror.TokenHeader) != "") {
			t.Fatalf("%s: containerd must send the token to the resolver only; the request to %s is wrong", registry,
				host.Host)
		}
		path, ok := strings.CutPrefix(host.Path, "/v2")
		if !ok || host.Scheme != "https" && host.Host != resolver && !strings.HasPrefix(registry, "localhost") {
			t.Fatalf("containerd contacts %s at the wrong URL %s://%s%s", registry, host.Scheme, host.Host, host.Path)
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

func TestContainerdAsksTheResolverOrNobodyElse(t *testing.T) {
	t.Parallel()
	const nowhere = "another-program-has-the-port-of-the-mirror-resolver.invalid./"
	node, alone := newContainerd(t, "http://"+resolver), newContainerd(t, "")
	images := []string{"quay.io/a/b", "quay.io:443/a", "quay.io:0443/a", "quay.io:5000/a", "localhost:5000/a", "localhost/a",
		"nginx", "index.docker.io/library/nginx", "10.1.2.180/a", "10.1.2.1:80/a", "nul.example.com/a", "com1.io:5000/a",
		"xn--bcher-kva.example:65535/a", "[fd00::1]:5000/a", "[fd00::1]/a", "[0:0::1]/a", "mcr.microsoft.com/windows/nanoserver"}
	for _, image := range images {
		digest, tag := node.places(t, image)
		if want := []string{resolver}; !slices.Equal(digest, want) || !slices.Equal(tag, want) {
			t.Errorf("%s: containerd contacts %v by digest and %v by tag, want only the resolver", image, digest, tag)
		}
		digest, tag = alone.places(t, image)
		if len(tag) != 1 || !slices.Equal(digest, tag) || !strings.HasPrefix(tag[0], nowhere) {
			t.Errorf("%s: while another program has the port, "+
				"containerd contacts %v by digest and %v by tag, want none", image, digest, tag)
		}
	}
}

func digest(source string, mirrors ...string) mirror.Set {
	set := tag(source, mirrors...)
	set.Kind = contract.PullByDigest
	return set
}

// inOrder reports whether all elements of some are in all, in the same order.
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
