package mirror

import (
	"slices"
	"strings"
)

// windowsImages is the registry of Windows' base images and of the image that every pod needs.
const windowsImages = "mcr.microsoft.com"

// Never reports whether this repository must not be contacted, as a source or as a mirror, in every spelling of its
// host. If repository is empty, Never reports on the whole registry.
func (r Rules) Never(host, repository string) bool {
	name := Reference{Host: host, Repository: repository}.normal().location()
	return r.forbids(name) || r.blocks(name) && !r.scopes.always.cover(name)
}

// Names reports whether the cluster's settings name a registry: as a source, as an allowed registry, or as the registry
// that every node needs.
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

// MayLead reports whether a registry may redirect a pull to a host. repository is the repository in the new address, or
// empty. No rule names content networks. Rules about a whole domain don't apply to hosts below the registry's own host.
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

// forbids reports whether NeverContactSource applies to a name. The most specific source decides, as for mirrors. A
// rule for a registry applies with and without its default port, and, as on Linux nodes, to all other ports without
// their own source.
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

// spellings lists the names that rules may use for a host: as given and as CanonicalHost returns it, each with and
// without the default port.
func spellings(host string) []string {
	bare, known := withoutDefaultPort(host), CanonicalHost(host)
	all := []string{host, bare, bare + defaultPort}
	if known != bare {
		all = append(all, known, known+defaultPort)
	}
	return all
}
