package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// scopes are the cluster's settings about registries, apart from mirrors.
type scopes struct {
	blocked, allowed, always, insecure scopeList
	restricted                         bool
}

// refuse reports whether any image can be refused.
func (s scopes) refuse() bool { return s.restricted || len(s.blocked) > 0 }

// scopeList is a list of registries, namespaces, repositories and domains. Their hosts have no default port.
type scopeList []location

// cover reports whether an element of the list contains a name and everything below it.
func (l scopeList) cover(name location) bool {
	return slices.ContainsFunc(l, func(scope location) bool { return scope.reaches(name) })
}

// reaches is covers for scopes that may be wildcards.
func (l location) reaches(other location) bool {
	if !l.wildcard {
		return !other.wildcard && l.covers(other)
	}
	if other.wildcard {
		return other.host == l.host || strings.HasSuffix(other.host, "."+l.host)
	}
	host, _, _, err := splitPort(other.host)
	return err == nil && strings.HasSuffix(host, "."+l.host)
}

// Restrict adds the cluster's settings about registries to the rules. As on Linux nodes, a blocked or insecure
// registry, namespace or repository is a separate source: mirrors of its registry or namespace don't apply to it. The
// error is a *contract.Problem with ReasonManifestInvalid.
func (r Rules) Restrict(s contract.RegistrySources) (Rules, error) {
	restricted := Rules{entries: maps.Clone(r.entries), scopes: scopes{restricted: s.Restricted}}
	for _, list := range []struct {
		texts []string
		to    *scopeList
	}{{s.Blocked, &restricted.scopes.blocked}, {s.Allowed, &restricted.scopes.allowed},
		{s.Always, &restricted.scopes.always}, {s.Insecure, &restricted.scopes.insecure}} {
		for _, text := range list.texts {
			scope, err := parseScope(text)
			if err != nil {
				return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid, "registry %s: %s", quote(text), err)
			}
			*list.to = append(*list.to, scope)
		}
	}
	if restricted.entries == nil {
		restricted.entries = map[string]entry{}
	}
	for _, scope := range slices.Concat(restricted.scopes.blocked, restricted.scopes.insecure) {
		if _, ok := restricted.entries[scope.String()]; !ok {
			restricted.entries[scope.String()] = entry{source: scope}
		}
	}
	return restricted.indexed(), nil
}

// parseScope parses a scope into the form that lists have.
func parseScope(text string) (location, error) {
	scope, err := parseSource(text)
	scope.host = withoutDefaultPort(scope.host)
	return scope, err
}

// Refused returns why the cluster refuses an image, whatever its mirrors have, or an empty string. The text contains no
// secret.
func (r Rules) Refused(host, repository string) string {
	name := Reference{Host: host, Repository: repository}.normal().location()
	switch {
	case r.scopes.always.cover(name):
		return ""
	case r.blocks(name):
		return "the cluster blocks this registry (blockedRegistries of the Image object cluster)"
	case r.scopes.restricted && !r.scopes.allowed.cover(name):
		return "the cluster does not allow this registry (allowedRegistries of the Image object cluster)"
	}
	return ""
}

// blocks reports whether the cluster blocks a name. As on Linux nodes, a registry without a port is blocked at each of
// its ports, except for names with their own source.
func (r Rules) blocks(name location) bool {
	known := location{host: CanonicalHost(name.host), path: name.path}
	if r.scopes.blocked.cover(name) || r.scopes.blocked.cover(known) {
		return true
	}
	host, _, hasPort, err := splitPort(known.host)
	if err != nil || !hasPort || !r.scopes.blocked.cover(location{host: host}) {
		return false
	}
	_, own := r.findPath(name.host, name.path)
	return !own
}

// Insecure reports whether a repository may present any certificate, or speak http without TLS.
func (r Rules) Insecure(host, repository string) bool {
	return r.scopes.insecure.cover(Reference{Host: host, Repository: repository}.normal().location())
}

// withoutReference removes the tag and the digest from an image name. The port of a registry stays.
func withoutReference(text string) string {
	text, _, _ = strings.Cut(text, "@")
	if colon := strings.LastIndexByte(text, ':'); colon > strings.IndexByte(text, '/') && strings.Contains(text, "/") {
		text = text[:colon]
	}
	return text
}

// SourcesObject names, in messages, the object with the settings about registries.
const SourcesObject = "Image/cluster"

// CheckSources checks the settings of an administrator about registries and returns the valid ones, sorted; nil if they
// have no effect. An invalid entry of the allowed registries allows nothing.
func CheckSources(raw contract.RegistrySources) (*contract.RegistrySources, []Rejected) {
	var rejected []Rejected
	read := func(name string, texts []string, check func(location) error) (all []string) {
		for _, text := range texts {
			scope, err := parseScope(text)
			if err == nil {
				err = check(scope)
			}
			if err != nil {
				rejected = append(rejected,
					Rejected{Object: SourcesObject, Source: text, Why: fmt.Sprintf("in %s: %s", name, err)})
				continue
			}
			all = append(all, scope.String())
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	whatever := func(location) error { return nil } // no folder is needed to refuse something
	blocked := slices.Clone(raw.Blocked)
	for i, text := range blocked {
		if repository := withoutReference(text); repository != text {
			blocked[i] = repository
			rejected = append(rejected, Rejected{Object: SourcesObject, Source: text, Why: "in blockedRegistries: it " +
				"names one image; all of " + quote(repository) + " is blocked, because layers have no tag"})
		}
	}
	checked := &contract.RegistrySources{
		Blocked: read("blockedRegistries", blocked, whatever), Restricted: raw.Restricted,
		Allowed:  read("allowedRegistries", raw.Allowed, whatever),
		Insecure: read("insecureRegistries", raw.Insecure, checkDirectory),
	}
	if raw.Restricted && len(raw.Blocked) > 0 {
		rejected = append(rejected, Rejected{
			Object: SourcesObject, Source: raw.Blocked[0], Why: "only one of allowedRegistries and " +
				"blockedRegistries may be set; images must satisfy both",
		})
	}
	if len(checked.Blocked)+len(checked.Insecure) == 0 && !checked.Restricted {
		return nil, rejected
	}
	return checked, rejected
}
