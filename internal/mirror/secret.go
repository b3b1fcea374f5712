package mirror

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// PullSecret holds the cluster's credentials for registries. The zero value has none. It never
// changes once made, and never shows itself in text.
type PullSecret struct {
	// exact by host[:port][/path], as location.String writes it.
	exact map[string]Credential
	// globs have an asterisk in their host; the most specific first.
	globs    []glob
	unusable []string
}

// glob is a key such as *.example.com/team: each asterisk stands for any characters within one part
// of a host name, as kubelet has it.
type glob struct {
	host, path string
	credential Credential
}

// Format keeps fmt, whatever the verb, from what is secret.
func (PullSecret) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(hidden)) }

// String tells nothing.
func (PullSecret) String() string { return hidden }

// MarshalText tells nothing, so that logs and JSON do not either.
func (PullSecret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// ParsePullSecret reads a .dockerconfigjson: {"auths": {"<host>[/<path>]": {"auth": …}}}. Keys may
// have a scheme, and /v1/ or /v2/ behind it, as docker writes them. An entry that can't be used
// does not spoil the others, see Unusable. The error is a *contract.Problem with
// ReasonPullSecretInvalid and repeats nothing of the content.
func ParsePullSecret(data []byte) (PullSecret, error) {
	var file *struct {
		Auths       map[string]json.RawMessage `json:"auths"`
		CredHelpers map[string]json.RawMessage `json:"credHelpers"`
	}
	if err := json.Unmarshal(data, &file); err != nil || file == nil {
		return PullSecret{}, contract.NewProblem(contract.ReasonPullSecretInvalid, "reading the pull secret: %s",
			withoutContent(err))
	}
	secret := PullSecret{exact: make(map[string]Credential, len(file.Auths))}
	// what was written as it is kept goes before what had a scheme, or another name of Docker Hub
	plain := map[string]bool{}
	for _, text := range slices.Sorted(maps.Keys(file.Auths)) {
		credential, err := parseCredential(file.Auths[text])
		host, path, ok := parseKey(text)
		name := location{host: host, path: path}.String()
		switch {
		case !ok || err != nil:
			secret.refuse(text)
		case strings.Contains(host, "*"):
			secret.globs = append(secret.globs, glob{host, path, credential})
		case name == text:
			secret.exact[name], plain[name] = credential, true
		case !plain[name]:
			if _, taken := secret.exact[name]; !taken {
				secret.exact[name] = credential
			}
		}
	}
	for _, text := range slices.Sorted(maps.Keys(file.CredHelpers)) { // nodes don't have the programs
		secret.refuse(text)
	}
	slices.SortStableFunc(secret.globs, func(a, b glob) int {
		return cmp.Or(cmp.Compare(len(b.path), len(a.path)), cmp.Compare(len(b.host), len(a.host)))
	})
	return secret, nil
}

// refuse notes the key of an entry that can't be used, without the password that it may contain.
func (s *PullSecret) refuse(key string) {
	s.unusable = append(s.unusable, quote(key[strings.LastIndexByte(key, '@')+1:]))
}

// withoutContent says what is wrong with JSON and where, but not what stands there.
func withoutContent(err error) string {
	var syntax *json.SyntaxError
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &syntax):
		return fmt.Sprintf("it is not JSON: byte %d", syntax.Offset)
	case errors.As(err, &wrong):
		return fmt.Sprintf("it is JSON of another form than {\"auths\": {…}}: byte %d", wrong.Offset)
	}
	return "it is not a JSON object"
}

// parseKey reads a key of the pull secret.
func parseKey(text string) (host, repository string, ok bool) {
	name := strings.TrimSpace(text)
	_, rest, hasScheme := strings.Cut(name, "://")
	if hasScheme {
		if scheme := strings.ToLower(name[:len(name)-len(rest)]); scheme != "https://" && scheme != "http://" {
			return "", "", false
		}
		name = rest
	}
	trimmed := strings.TrimRight(name, "/")
	host, repository, _ = strings.Cut(trimmed, "/")
	if (hasScheme || trimmed != name) && (repository == "v1" || repository == "v2") {
		repository = "" // the path of the registry's interface, no namespace
	}
	host = dockerHubByName(strings.ToLower(host))
	checked := host
	if strings.Contains(host, "*") {
		checked = strings.ReplaceAll(host, "*", "x")
		if !strings.Contains(host, ".") {
			return "", "", false // one asterisk for all hosts is for none
		}
	}
	if checkHost(checked) != nil || repository != "" && checkRepository(repository) != nil {
		return "", "", false
	}
	return host, repository, true
}

// For gives the credential for a repository: that of the most specific key that the repository is
// below, and of keys with asterisks only if no other fits. The host is as in image names:
// docker.io. False means that the registry is asked without one; an entry without content says so
// too.
func (s PullSecret) For(host, repository string) (Credential, bool) {
	name := Reference{Host: host, Repository: repository}.normal().location()
	name.host = dockerHubByName(name.host)
	for path := name.path; ; path = path[:max(strings.LastIndexByte(path, '/'), 0)] {
		if credential, ok := s.exact[location{host: name.host, path: path}.String()]; ok {
			return credential, credential != (Credential{})
		}
		if path == "" {
			break
		}
	}
	for _, g := range s.globs {
		if _, ok := below(name.path, g.path); ok && matches(g.host, name.host) {
			return g.credential, g.credential != (Credential{})
		}
	}
	return Credential{}, false
}

// matches compares part by part, so that an asterisk never stands for a dot. The port must be the
// same.
func matches(pattern, host string) bool {
	patterns, parts := strings.Split(pattern, "."), strings.Split(host, ".")
	if len(patterns) != len(parts) {
		return false
	}
	for i := range parts {
		if ok, err := path.Match(patterns[i], parts[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// IsEmpty says whether it has no credentials at all.
func (s PullSecret) IsEmpty() bool { return len(s.exact) == 0 && len(s.globs) == 0 }

// Hosts lists the registries that the secret has something for, sorted, as image names call them.
// Keys with an asterisk are not among them.
func (s PullSecret) Hosts() []string {
	hosts := map[string]bool{}
	for name := range s.exact {
		host, _, _ := strings.Cut(name, "/")
		hosts[host] = true
	}
	return slices.Sorted(maps.Keys(hosts))
}

// Unusable lists the keys of entries that can't be used, each quoted and shortened: those that are not understood, and
// those that name a credential helper.
func (s PullSecret) Unusable() []string { return slices.Clone(s.unusable) }
