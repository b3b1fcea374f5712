package mirror

import (
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// Rules decide which registries each image is pulled from. The zero value has no rules, so every image comes from its
// source. Rules are immutable.
type Rules struct {
	entries map[Location]entry // by source
	// These are the cluster's settings about registries, except mirrors.
	blocked, allowed, always, insecure []Location
	restricted                         bool
}

// entry is the rule for one source. As on Linux, pulls by digest and pulls by tag share one entry. This has two
// effects. If a repository has an entry with digest mirrors only, the entry of its namespace or registry doesn't apply,
// not even for tags. NeverContactSource applies to both kinds of pulls.
type entry struct {
	source  Location
	mirrors map[contract.PullKind][]Location
	never   bool
}

// NewRules returns the rules for a result of Merge. If a rule is invalid, NewRules returns no rules and a
// *contract.Problem with ReasonManifestInvalid.
func NewRules(rules []contract.MirrorRule) (Rules, error) {
	all := Rules{entries: make(map[Location]entry, len(rules))}
	for _, rule := range rules {
		source, err := parseSource(rule.Source)
		if err != nil {
			return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid, "mirrors of %s: %s", quote(rule.Source),
				err)
		}
		one, ok := all.entries[source]
		if !ok {
			one = entry{source: source, mirrors: map[contract.PullKind][]Location{}}
		}
		if _, twice := one.mirrors[rule.Kind]; twice || rule.Kind != contract.PullByDigest &&
			rule.Kind != contract.PullByTag {
			return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid,
				"mirrors of %s: kind %s is unknown or there twice", quote(rule.Source), quote(string(rule.Kind)))
		}
		one.mirrors[rule.Kind] = make([]Location, 0, len(rule.Mirrors))
		for _, text := range rule.Mirrors {
			mirror, err := parseLocation(text)
			if err != nil {
				return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid, "mirror %s of %s: %s", quote(text),
					quote(rule.Source), err)
			}
			one.mirrors[rule.Kind] = append(one.mirrors[rule.Kind], mirror)
		}
		one.never = one.never || rule.NeverContactSource
		all.entries[source] = one
	}
	return all, nil
}

// Sources lists the repositories to pull an image from, in order, without duplicates. The list is empty if the cluster
// refuses the image, or if no mirror exists for this kind of pull and the source must not be contacted. If an image
// name contains both a tag and a digest, kind must be PullByDigest.
func (r Rules) Sources(image Location, kind contract.PullKind) (all []Location) {
	if r.Refused(image) != "" {
		return nil
	}
	found := r.find(image) // without an entry, only the source remains
	for _, mirror := range found.mirrors[kind] {
		if at, ok := found.rewrite(image, mirror); ok {
			all = append(all, at)
		}
	}
	var distinct []Location
	for _, at := range append(all, image) {
		if !slices.Contains(distinct, at) && !r.Never(at) {
			distinct = append(distinct, at)
		}
	}
	return distinct
}

// find returns the entry of the most specific source that contains the name.
func (r Rules) find(name Location) entry {
	if found, ok := r.findPath(name); ok {
		return found
	}
	return r.findDomain(name)
}

// findPath returns the entry for a name, its nearest namespace or its host, in this order, but no entry for a domain.
func (r Rules) findPath(name Location) (entry, bool) {
	for {
		if found, ok := r.entries[name]; ok || name.Path == "" {
			return found, ok
		}
		name.Path = name.Path[:max(strings.LastIndexByte(name.Path, '/'), 0)]
	}
}

// findDomain returns the entry for the longest domain that contains the name's host, or an empty entry.
func (r Rules) findDomain(name Location) entry {
	domain, _ := name.split()
	for ok := true; ok; {
		if _, domain, ok = strings.Cut(domain, "."); ok {
			if found, ok := r.entries[Location{Host: domain, wildcard: true}]; ok {
				return found
			}
		}
	}
	return entry{}
}

// rewrite returns the image's name at the mirror: the mirror replaces the part that matches the source. If the result
// is not a valid image name, rewrite returns false. A source *.domain matches a host with any port, and the result
// keeps the port of the image. So if the image's name has a port, the mirror must be a host without port and path.
func (e entry) rewrite(image, mirror Location) (Location, bool) {
	host := mirror.Host
	if _, port := image.split(); e.source.wildcard && port != "" {
		if _, taken := mirror.split(); taken != "" || mirror.Path != "" {
			return Location{}, false
		}
		host += ":" + port
	}
	rest, _ := below(image.Path, e.source.Path)
	path := strings.Trim(mirror.Path+"/"+rest, "/")
	return At(host, path), path != "" && len(path) <= 255
}

// Never reports whether a registry or repository must not be contacted, neither as a source nor as a mirror.
func (r Rules) Never(name Location) bool {
	return r.forbids(name) || r.blocks(name) && !covers(r.always, name)
}

// `forbids` reports whether NeverContactSource applies to a name. The most specific source decides, as for mirrors. As
// on Linux nodes, a rule for a registry without a port applies to every port of the registry. Exception: ports with a
// separate rule.
func (r Rules) forbids(name Location) bool {
	found, ok := r.findPath(name)
	if !ok {
		found, ok = r.entries[name.withoutPort()]
	}
	if !ok {
		found = r.findDomain(name)
	}
	return found.never
}

// MayLead reports whether a registry may redirect a pull to a location. Registries often redirect to hosts below their
// own host, and rules rarely list these hosts. So such redirects ignore rules about a whole domain.
func (r Rules) MayLead(from, to Location) bool {
	if to.Host == from.Host {
		return to.Path == "" || !r.Never(to)
	}
	network, _ := SplitHost(from.Address())
	name, _ := SplitHost(to.Host)
	isSource := func() bool { // the rules have an entry for this host
		for source := range r.entries {
			if source.Host == to.Host && !source.wildcard {
				return true
			}
		}
		return false
	}
	if strings.HasSuffix(name, "."+network) && !isSource() {
		return true
	}
	return !r.Never(to.registry()) && !r.Never(to)
}
