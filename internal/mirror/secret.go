package mirror

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// PullSecret contains the cluster's credentials for registries. The zero value has no credentials. A PullSecret is
// immutable. Formatted as text, it shows no secret.
type PullSecret struct {
	exact map[Location]Credential
	// globs are the credentials whose key has an asterisk in its host. The most specific key comes first.
	globs    []glob
	unusable []string
}

// glob is a key such as *.example.com/team. As in kubelet, an asterisk matches any characters within one part of a host
// name.
type glob struct {
	Location
	credential Credential
}

// Format hides the secrets from fmt, for every formatting verb.
func (PullSecret) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(hidden)) }

// ParsePullSecret parses a .dockerconfigjson: {"auths": {"<host>[/<path>]": {"auth": …}}}. Keys may have a scheme, and
// may end in /v1/ or /v2/, as docker writes them. An unusable entry doesn't affect the other entries, see Unusable. The
// error is a *contract.Problem with ReasonPullSecretInvalid. It contains no part of the data.
func ParsePullSecret(data []byte) (PullSecret, error) {
	var file *struct {
		Auths       map[string]json.RawMessage `json:"auths"`
		CredHelpers map[string]json.RawMessage `json:"credHelpers"`
	}
	if err := json.Unmarshal(data, &file); err != nil || file == nil {
		return PullSecret{}, contract.NewProblem(contract.ReasonPullSecretInvalid,
			"reading the pull secret: it is not JSON of the form {\"auths\": {\"<registry>\": {…}}}")
	}
	secret := PullSecret{exact: make(map[Location]Credential, len(file.Auths))}
	for _, text := range slices.Sorted(maps.Keys(file.Auths)) {
		credential, err := parseCredential(file.Auths[text])
		name, ok := parseKey(text)
		switch {
		case !ok || err != nil:
			secret.refuse(text)
		case strings.Contains(name.Host, "*"):
			secret.globs = append(secret.globs, glob{name, credential})
		default:
			// If several keys name the same location, the key in its normal form (no scheme, docker.io) wins.
			if _, taken := secret.exact[name]; !taken || name.String() == text {
				secret.exact[name] = credential
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(file.CredHelpers)) { // nodes don't have these helper programs
		secret.refuse(text)
	}
	slices.SortStableFunc(secret.globs, func(a, b glob) int {
		return cmp.Or(cmp.Compare(len(b.Path), len(a.Path)), cmp.Compare(len(b.Host), len(a.Host)))
	})
	return secret, nil
}

// refuse records the key of an unusable entry, without the password that the key may contain.
func (s *PullSecret) refuse(key string) {
	s.unusable = append(s.unusable, quote(key[strings.LastIndexByte(key, '@')+1:]))
}

// parseKey parses a key of the pull secret. If the key is invalid, `ok` is false.
func parseKey(text string) (key Location, ok bool) {
	name := strings.TrimSpace(text)
	_, rest, hasScheme := strings.Cut(name, "://")
	if hasScheme {
		if scheme := strings.ToLower(name[:len(name)-len(rest)]); scheme != "https://" && scheme != "http://" {
			return Location{}, false
		}
		name = rest
	}
	trimmed := strings.TrimRight(name, "/")
	host, repository, _ := strings.Cut(trimmed, "/")
	if (hasScheme || trimmed != name) && (repository == "v1" || repository == "v2") {
		repository = "" // this is the path of the registry's API, not a namespace
	}
	host = strings.ToLower(host)
	checked := host
	if strings.Contains(host, "*") {
		checked = strings.ReplaceAll(host, "*", "x")
		if !strings.Contains(host, ".") {
			return Location{}, false // an asterisk without a domain matches no host
		}
	}
	if checkHost(checked) != nil || repository != "" && checkRepository(repository) != nil {
		return Location{}, false
	}
	return Location{Host: canonical(host), Path: repository}, true
}

// For returns the credential for a repository. If several keys contain the repository, the most specific key wins. Keys
// with asterisks count only if no other key matches. If For returns false, the registry gets no credential, for example
// because the matching entry is empty.
func (s PullSecret) For(repository Location) (Credential, bool) {
	for name := repository; ; name.Path = name.Path[:max(strings.LastIndexByte(name.Path, '/'), 0)] {
		if credential, ok := s.exact[name]; ok {
			return credential, credential != (Credential{})
		}
		if name.Path == "" {
			break
		}
	}
	for _, g := range s.globs {
		if _, ok := below(repository.Path, g.Path); ok && matches(g.Host, repository.Host) {
			return g.credential, g.credential != (Credential{})
		}
	}
	return Credential{}, false
}

// `matches` reports whether a host matches a pattern. An asterisk matches no dot. The ports must be equal.
func matches(pattern, host string) bool {
	parts := strings.NewReplacer(".", "/") // path.Match lets an asterisk match anything except a slash
	ok, err := path.Match(parts.Replace(pattern), parts.Replace(host))
	return ok && err == nil
}

// Unusable lists the keys of entries that are invalid or name a credential helper, each quoted and shortened.
func (s PullSecret) Unusable() []string { return slices.Clone(s.unusable) }
