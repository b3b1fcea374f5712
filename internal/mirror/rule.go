package mirror

import (
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Rules decide for each image where it is pulled from. The zero value has no rules: every image comes from its source.
// Rules are immutable.
type Rules struct {
	// entries by source, in the form of location.String.
	entries map[string]entry
	// byHost contains the hosts of all sources except wildcards.
	byHost map[string]bool
	scopes scopes
}

// indexed collects the hosts of all entries.
func (r Rules) indexed() Rules {
	r.byHost = make(map[string]bool, len(r.entries))
	for _, e := range r.entries {
		if !e.source.wildcard {
			r.byHost[e.source.host] = true
		}
	}
	return r
}

// entry holds the rules of one source. As on Linux, both kinds of pulls share it: a source with digest mirrors only
// still hides the tag mirrors of its namespace or registry, and NeverContactSource applies to both kinds.
type entry struct {
	source  location
	mirrors map[contract.PullKind][]location
	never   bool
}

// Pull is one registry and repository to pull from.
type Pull struct {
	// Host is the registry in the form of image names and credentials, with the port if there is one.
	Host       string
	Repository string
	// Source reports that this is the registry and repository of the image's own name.
	Source bool
}

// Address returns the host and port of the registry. For Docker Hub, the address differs from its name.
func (p Pull) Address() string { return address(p.Host) }

func address(host string) string {
	if host == dockerHub {
		return dockerHubAddress
	}
	return host
}

// NewRules returns the rules for the result of Merge. Its error is a *contract.Problem with ReasonManifestInvalid. Then
// no rule applies.
func NewRules(rules []contract.MirrorRule) (Rules, error) {
	all := Rules{entries: make(map[string]entry, len(rules))}
	for _, rule := range rules {
		source, err := parseSource(rule.Source)
		if err != nil {
			return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid, "mirrors of %s: %s", quote(rule.Source),
				err)
		}
		key := source.String()
		one, ok := all.entries[key]
		if !ok {
			one = entry{source: source, mirrors: map[contract.PullKind][]location{}}
		}
		if _, twice := one.mirrors[rule.Kind]; twice || rule.Kind != contract.PullByDigest &&
			rule.Kind != contract.PullByTag {
			return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid,
				"mirrors of %s: kind %s is unknown or there twice", quote(rule.Source), quote(string(rule.Kind)))
		}
		one.mirrors[rule.Kind] = make([]location, 0, len(rule.Mirrors))
		for _, text := range rule.Mirrors {
			mirror, err := parseLocation(text)
			if err != nil {
				return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid, "mirror %s of %s: %s", quote(text),
					quote(rule.Source), err)
			}
			one.mirrors[rule.Kind] = append(one.mirrors[rule.Kind], mirror)
		}
		one.never = one.never || rule.NeverContactSource
		all.entries[key] = one
	}
	return all.indexed(), nil
}

// Sources lists the registries to pull the image from, in order, without duplicates. The list is empty if the source
// must not be contacted and no mirror serves this kind of pull, or if the cluster refuses the image.
func (r Rules) Sources(image Reference) []Pull {
	image = image.normal()
	if r.Refused(image.Host, image.Repository) != "" {
		return nil
	}
	source := Pull{Host: image.Host, Repository: image.Repository, Source: true}
	found, _ := r.find(image.location()) // without one, there is only the source
	var pulls []Pull
	seen := map[Pull]bool{}
	add := func(p Pull) {
		p.Source = p.Host == source.Host && p.Repository == source.Repository
		if !seen[p] && !r.Never(p.Host, p.Repository) {
			seen[p] = true
			pulls = append(pulls, p)
		}
	}
	for _, mirror := range found.mirrors[image.Kind] {
		if p, ok := found.rewrite(image, mirror); ok {
			add(p)
		}
	}
	add(source)
	return pulls
}

// find returns the entry of the most specific source that contains the name: the longest path first, then the host,
// then the longest domain.
func (r Rules) find(name location) (entry, bool) {
	if found, ok := r.findPath(name.host, name.path); ok {
		return found, true
	}
	if found, ok := r.findPath(withoutDefaultPort(name.host), name.path); ok {
		return found, true
	}
	return r.findDomain(name.host)
}

// findPath finds the longest path on one host.
func (r Rules) findPath(host, path string) (entry, bool) {
	for {
		if found, ok := r.entries[location{host: host, path: path}.String()]; ok || path == "" {
			return found, ok
		}
		path = path[:max(strings.LastIndexByte(path, '/'), 0)]
	}
}

// findDomain finds the wildcard with the longest domain that contains the host.
func (r Rules) findDomain(host string) (entry, bool) {
	domain, _, _, err := splitPort(host)
	if err != nil {
		return entry{}, false
	}
	for {
		_, parent, ok := strings.Cut(domain, ".")
		if !ok {
			return entry{}, false
		}
		if found, ok := r.entries[location{host: parent, wildcard: true}.String()]; ok {
			return found, true
		}
		domain = parent
	}
}

// rewrite replaces the part of the image's name that matches the source by the mirror. It returns false if the result
// is no valid image name.
func (e entry) rewrite(image Reference, mirror location) (Pull, bool) {
	at, ok := e.place(image.Host, mirror)
	rest, _ := below(image.Repository, e.source.path)
	path := strings.Trim(at.path+"/"+rest, "/")
	if !ok || path == "" || len(path) > 255 {
		return Pull{}, false
	}
	p := Reference{Host: at.host, Repository: path}.normal()
	return Pull{Host: p.Host, Repository: p.Repository}, true
}

// place returns the location that replaces the source in image names of a host. A wildcard matches a host without its
// port, so the port stays. The port can only be appended to a mirror that is a host without a port.
func (e entry) place(host string, mirror location) (location, bool) {
	if !e.source.wildcard {
		return mirror, true
	}
	_, port, hasPort, err := splitPort(host)
	if err != nil || !hasPort {
		return mirror, err == nil
	}
	if _, _, taken, _ := splitPort(mirror.host); taken || mirror.path != "" {
		return location{}, false
	}
	return location{host: mirror.host + ":" + port}, true
}
