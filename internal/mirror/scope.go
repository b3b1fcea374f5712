package mirror

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// `covers` reports whether a location in list contains name.
func covers(list []Location, name Location) bool {
	return slices.ContainsFunc(list, func(scope Location) bool { return scope.contains(name) })
}

// Restrict adds the cluster's settings about registries to the rules. As on Linux nodes, a blocked or insecure
// registry, namespace or repository is a separate source: mirrors of the registry or namespace above it don't apply to
// it. The error is a *contract.Problem with ReasonManifestInvalid.
func (r Rules) Restrict(s contract.RegistrySources) (Rules, error) {
	restricted := Rules{entries: map[Location]entry{}, restricted: s.Restricted}
	for _, list := range []struct {
		texts []string
		to    *[]Location
	}{{s.Blocked, &restricted.blocked}, {s.Allowed, &restricted.allowed}, {s.Always, &restricted.always},
		{s.Insecure, &restricted.insecure}} {
		for _, text := range list.texts {
			scope, err := parseSource(text)
			if err != nil {
				return Rules{}, contract.NewProblem(contract.ReasonManifestInvalid, "registry %s: %s", quote(text), err)
			}
			*list.to = append(*list.to, scope)
		}
	}
	for _, scope := range slices.Concat(restricted.blocked, restricted.insecure) {
		restricted.entries[scope] = entry{source: scope}
	}
	maps.Copy(restricted.entries, r.entries)
	return restricted, nil
}

// Refused tells why the cluster's settings refuse an image. If they allow the image, it returns an empty string. The
// image's mirrors don't matter. The text contains no secret.
func (r Rules) Refused(name Location) string {
	switch {
	case covers(r.always, name):
		return ""
	case r.blocks(name):
		return "the cluster blocks this registry (blockedRegistries of the Image object cluster)"
	case r.restricted && !covers(r.allowed, name):
		return "the cluster does not allow this registry (allowedRegistries of the Image object cluster)"
	}
	return ""
}

// `blocks` reports whether the cluster blocks a name. As on Linux nodes, if a registry without a port is blocked, it is
// blocked at each port. Exception: the rules have an entry for the name with its port.
func (r Rules) blocks(name Location) bool {
	if covers(r.blocked, name) {
		return true
	}
	_, own := r.findPath(name)
	return !own && covers(r.blocked, name.withoutPort())
}

// Insecure reports whether a repository may present any certificate, or use http without TLS.
func (r Rules) Insecure(name Location) bool { return covers(r.insecure, name) }

// withoutReference removes the tag and the digest from an image name. The port of the registry stays.
func withoutReference(text string) string {
	text, _, _ = strings.Cut(text, "@")
	if colon := strings.LastIndexByte(text, ':'); colon > strings.IndexByte(text, '/') && strings.Contains(text, "/") {
		text = text[:colon]
	}
	return text
}

// SourcesObject is the name, in messages, of the object with the cluster's settings about registries.
const SourcesObject = "Image/cluster"

// CheckSources checks an administrator's settings about registries. It returns the valid settings in sorted order, and
// a problem for each invalid entry. If no setting has an effect, the settings are nil. An invalid entry in
// allowedRegistries allows no registry.
func CheckSources(raw contract.RegistrySources) (*contract.RegistrySources, []*contract.Problem) {
	var problems []*contract.Problem
	reject := func(source, why string) { problems = append(problems, rejected(SourcesObject, source, "", why)) }
	read := func(name string, texts []string) (all []string) {
		for _, text := range texts {
			scope, err := parseSource(text)
			if err != nil {
				reject(text, fmt.Sprintf("in %s: %s", name, err))
				continue
			}
			all = append(all, scope.String())
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	blocked := slices.Clone(raw.Blocked)
	for i, text := range blocked {
		if repository := withoutReference(text); repository != text {
			blocked[i] = repository
			reject(text, "in blockedRegistries: it names one image; all of "+quote(repository)+
				" is blocked, because layers have no tag")
		}
	}
	checked := &contract.RegistrySources{
		Blocked: read("blockedRegistries", blocked), Restricted: raw.Restricted,
		Allowed:  read("allowedRegistries", raw.Allowed),
		Insecure: read("insecureRegistries", raw.Insecure),
	}
	if raw.Restricted && len(raw.Blocked) > 0 {
		reject(raw.Blocked[0], "allowedRegistries and blockedRegistries are both set, although only one may be; "+
			"images must satisfy both settings")
	}
	if len(checked.Blocked)+len(checked.Insecure) == 0 && !checked.Restricted {
		return nil, problems
	}
	return checked, problems
}
