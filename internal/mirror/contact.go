package mirror

import (
	"slices"
	"strings"
)

// windowsImages is the registry of Windows' base images and of the image that every pod needs.
const windowsImages = "mcr.microsoft.com"

// Never says whether this repository must not be contacted, be it as a source or as somebody's
// mirror, and however an address spells its host. Without a repository it is about the registry as
// a whole.
func (r Rules) Never(host, repository string) bool {
	name := Reference{Host: host, Repository: repository}.normal().location()
	return r.forbids(name) || r.blocks(name) && !r.scopes.always.cover(name)
}

// Names says whether a registry is one that the cluster knows of: that of a source, or of what may be
// pulled, or the one that every node needs.
func (r Rules) Names(host string) bool {
	for _, name := range spellings(host) {
		if r.byHost[name] || slices.ContainsFunc(r.scopes.allowed, func(scope location) bool {
			return scope.reaches(location{host: name, path: scope.path})
		}) {
			return true
		}
	}
	_, domain := r.findDomain(host)
	return domain || CanonicalHost(host) == windowsImages
}

// MayLead says whether a place may send a pull on to a host, of which repository is asked then if the
// address says so. Content networks are named in no rule. Those below the place's own host are not
// meant by rules about a whole domain.
func (r Rules) MayLead(from Pull, host, repository string) bool {
	to, own := CanonicalHost(host), CanonicalHost(from.Address())
	if to == own {
		return repository == "" || !r.Never(to, repository)
	}
	name, _ := SplitHost(host)
	network, _ := SplitHost(from.Address())
	if strings.HasSuffix(name, "."+network) && !r.byHost[to] {
		return true
	}
	return !r.Never(to, "") && !r.Never(to, repository)
}

// forbids says whether NeverContactSource holds for a name. The most specific source decides, as for
// mirrors; but what holds for a registry holds with its default port and without it, and, as on
// Linux nodes, at each other port that has no source of its own.
func (r Rules) forbids(name location) bool {
	for _, host := range spellings(name.host) {
		if found, ok := r.findPath(host, name.path); ok {
			return found.never
		}
	}
	known := CanonicalHost(name.host)
	if host, _, hasPort, err := splitPort(known); err == nil && hasPort {
		if found, ok := r.findPath(host, ""); ok {
			return found.never
		}
	}
	found, ok := r.findDomain(known)
	return ok && found.never
}

// spellings are the names that rules can have for a host: as it is, and as CanonicalHost has it, with
// the default port and without.
func spellings(host string) []string {
	bare, known := withoutDefaultPort(host), CanonicalHost(host)
	all := []string{host, bare, bare + defaultPort}
	if known != bare {
		all = append(all, known, known+defaultPort)
	}
	return all
}
