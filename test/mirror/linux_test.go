package conformance_test

import (
	"bytes"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"go.podman.io/image/v5/docker/policyconfiguration"
	"go.podman.io/image/v5/docker/reference"
	"go.podman.io/image/v5/pkg/sysregistriesv2"
	"go.podman.io/image/v5/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// linux is a Linux node with its own registries.conf.
type linux struct {
	system *types.SystemContext
	// policy is the content of policy.json, by scope. fallback is for images without a matching scope.
	policy   map[string]bool
	fallback bool
}

// newLinux writes the mirror sets to a registries.conf, as OpenShift's machine-config-operator does for Linux nodes.
// Each source is one registry. Each of its mirrors is for one kind of pull. If one set says that the source must not be
// contacted, the registry is blocked. Sets whose only mirror is the source itself are ignored.
func newLinux(t *testing.T, sets []mirror.Set) linux {
	t.Helper()
	return newLinuxWith(t, sets, contract.RegistrySources{})
}

// newLinuxWith does the same, and also writes the registry settings of the Image object.
func newLinuxWith(t *testing.T, sets []mirror.Set, sources contract.RegistrySources) linux {
	t.Helper()
	registries := map[string]*sysregistriesv2.Registry{}
	for kind, from := range map[contract.PullKind]string{contract.PullByDigest: sysregistriesv2.MirrorByDigestOnly,
		contract.PullByTag: sysregistriesv2.MirrorByTagOnly} {
		lists := map[string][][]string{}
		for _, set := range sets {
			if set.Kind != kind || !slices.ContainsFunc(set.Mirrors, func(m string) bool { return m != set.Source }) {
				continue
			}
			lists[set.Source] = append(lists[set.Source], set.Mirrors)
			r := registries[set.Source]
			if r == nil {
				r = &sysregistriesv2.Registry{}
				registries[set.Source] = r
				if strings.HasPrefix(set.Source, "*.") {
					r.Prefix = set.Source
				} else {
					r.Location = set.Source
				}
			}
			r.Blocked = r.Blocked || set.Policy == mirror.NeverContactSource
		}
		for source, all := range lists {
			for _, m := range mergeAsLinux(source, all) {
				registries[source].Mirrors = append(registries[source].Mirrors,
					sysregistriesv2.Endpoint{Location: m, PullFromMirror: from})
			}
		}
	}
	setSources(registries, sources)
	var file sysregistriesv2.V2RegistriesConf
	for _, source := range slices.Sorted(maps.Keys(registries)) {
		file.Registries = append(file.Registries, *registries[source])
	}
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(file); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	node := linux{
		system: &types.SystemContext{SystemRegistriesConfPath: filepath.Join(dir, "registries.conf"),
			SystemRegistriesConfDirPath: filepath.Join(dir, "none")},
		fallback: !sources.Restricted, policy: map[string]bool{},
	}
	for _, scope := range sources.Allowed {
		node.policy[scope] = true
	}
	for _, scope := range sources.Blocked {
		node.policy[scope] = false
	}
	if err := os.WriteFile(node.system.SystemRegistriesConfPath, text.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sysregistriesv2.TryUpdatingCache(node.system); err != nil {
		t.Fatalf("%v in\n%s", err, text.String())
	}
	return node
}

// setSources marks registries as blocked or insecure, as the machine-config-operator's library does: each scope becomes
// a registry. Registries and mirrors within a scope get the scope's mark.
func setSources(registries map[string]*sysregistriesv2.Registry, sources contract.RegistrySources) {
	for _, scope := range slices.Concat(sources.Blocked, sources.Insecure) {
		if registries[scope] != nil {
			continue
		}
		registries[scope] = &sysregistriesv2.Registry{}
		if strings.HasPrefix(scope, "*.") {
			registries[scope].Prefix = scope
		} else {
			registries[scope].Location = scope
		}
	}
	for name, r := range registries {
		within := func(name string) func(string) bool {
			return func(scope string) bool { return isWithin(name, scope) }
		}
		r.Blocked = r.Blocked || slices.ContainsFunc(sources.Blocked, within(name))
		r.Insecure = slices.ContainsFunc(sources.Insecure, within(name))
		for i, m := range r.Mirrors {
			r.Mirrors[i].Insecure = slices.ContainsFunc(sources.Insecure, within(m.Location))
		}
	}
}

// isWithin reports whether a scope equals another scope or is below it.
func isWithin(name, scope string) bool {
	domain, wildcard := strings.CutPrefix(scope, "*")
	if !wildcard {
		return name == scope || strings.HasPrefix(name, scope+"/")
	}
	host, _, _ := strings.Cut(name, "/")
	host, _, _ = strings.Cut(host, ":")
	return name == scope || strings.HasSuffix(host, domain)
}

// allows evaluates policy.json as CRI-O does: by the name that the user wrote. The most specific scope wins.
func (l linux) allows(t *testing.T, named reference.Named) bool {
	t.Helper()
	identity, err := policyconfiguration.DockerReferenceIdentity(named)
	if err != nil {
		t.Fatal(err)
	}
	for _, scope := range append([]string{identity}, policyconfiguration.DockerReferenceNamespaces(named)...) {
		if allowed, ok := l.policy[scope]; ok {
			return allowed
		}
	}
	return l.fallback
}

// mergeAsLinux merges lists of mirrors by the same rule as the product, but with another algorithm: it repeatedly
// removes the names without predecessors. Names that lose their last predecessor at the same time are sorted by name.
// If all names have a predecessor, the first by name is taken. The source follows each list that does not contain it.
// If it is last, it is omitted.
func mergeAsLinux(source string, lists [][]string) []string {
	before := map[string]map[string]bool{}
	for _, list := range lists {
		if !slices.Contains(list, source) {
			list = append(slices.Clone(list), source)
		}
		for i, name := range list {
			if before[name] == nil {
				before[name] = map[string]bool{}
			}
			if i > 0 {
				before[name][list[i-1]] = true
			}
		}
	}
	var queue, result []string
	take := func() {
		for _, name := range slices.Sorted(maps.Keys(before)) {
			if len(before[name]) == 0 && !slices.Contains(queue, name) {
				queue = append(queue, name)
			}
		}
	}
	take()
	for len(before) > 0 {
		if len(queue) == 0 {
			queue = append(queue, slices.Min(slices.Collect(maps.Keys(before))))
		}
		name := queue[0]
		queue = queue[1:]
		result = append(result, name)
		delete(before, name)
		for _, others := range before {
			delete(others, name)
		}
		take()
	}
	if result[len(result)-1] == source {
		result = result[:len(result)-1]
	}
	return result
}

// answer is the result of resolving an image on a node.
type answer struct {
	// places are the repositories to contact, in order, as host/repository.
	places []string
	// insecure are the places whose certificates are not verified.
	insecure map[string]bool
	// port reports that a source without a port matched a location with a port.
	port bool
	// prefix is the source of the rule that was used.
	prefix string
	// refused is the reason why the image can't be pulled at all.
	refused error
}

// sources returns the sources of an image, as containers/image does before a pull. It skips sources in a blocked
// registry. (docker_client.go of image/v5: newDockerClient refuses a blocked registry, for mirrors as for sources.)
func (l linux) sources(t *testing.T, name string, kind contract.PullKind) answer {
	t.Helper()
	named := parse(t, name, kind)
	if !l.allows(t, named) {
		return answer{}
	}
	registry, err := sysregistriesv2.FindRegistry(l.system, named.Name())
	if err != nil {
		t.Fatal(err)
	}
	if registry == nil {
		return answer{places: []string{named.Name()}}
	}
	a := answer{prefix: registry.Prefix, insecure: map[string]bool{}}
	pulls, err := registry.PullSourcesFromReference(named)
	if err != nil {
		a.refused = err
		return a
	}
	for _, pull := range pulls {
		at, err := sysregistriesv2.FindRegistry(l.system, pull.Reference.Name())
		if err != nil {
			t.Fatal(err)
		}
		place := pull.Reference.Name()
		if at == nil || !at.Blocked {
			a.places = append(a.places, place)
			a.insecure[place] = a.insecure[place] || pull.Endpoint.Insecure
		}
		a.port = a.port || at != nil && otherPort(at.Prefix, place)
	}
	return a
}

// otherPort reports whether a source without a wildcard matches the name of another registry with a port.
func otherPort(prefix, name string) bool {
	source, _, _ := strings.Cut(prefix, "/")
	host, _, _ := strings.Cut(name, "/")
	return !strings.HasPrefix(prefix, "*.") && source != host
}

// imageOf parses an image name as the resolver does.
func imageOf(t *testing.T, name string) mirror.Location {
	t.Helper()
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	image, err := mirror.ParseRepository(reference.Domain(named), reference.Path(named))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return image
}

func parse(t *testing.T, name string, kind contract.PullKind) reference.Named {
	t.Helper()
	if kind == contract.PullByDigest {
		name += "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	} else {
		name += ":1.0"
	}
	named, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return named
}
