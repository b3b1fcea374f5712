package resolver

import (
	"errors"
	"net/url"
	"strings"
)

// endpoint is a part of the distribution API.
type endpoint string

const (
	ping      endpoint = "ping"
	manifests endpoint = "manifests"
	blobs     endpoint = "blobs"
)

// target is what a request asks for.
type target struct {
	endpoint   endpoint
	registry   string // host[:port] that the user named, in lower case
	repository string
	tag        string // empty if asked by digest
	digest     digest // empty if asked by tag
}

// name is the image as a user would write it.
func (t target) name() string {
	if t.tag != "" {
		return t.registry + "/" + t.repository + ":" + t.tag
	}
	return t.registry + "/" + t.repository + "@" + string(t.digest)
}

// path is the path of the target at a source that calls the repository by another name.
func (t target) path(repository string) string {
	reference := t.tag
	if reference == "" {
		reference = string(t.digest)
	}
	return "/v2/" + repository + "/" + string(t.endpoint) + "/" + reference
}

// Why a request is refused. The texts go to the client, so they repeat nothing of what it sent.
var (
	errUnknownPath = errors.New("only manifests and blobs can be had here")
	errNoNamespace = errors.New("the registry is missing: exactly one ns is needed")
	errNamespace   = errors.New("ns is no registry")
	errRepository  = errors.New("the repository's name is not legal")
	errReference   = errors.New("neither a legal tag nor a digest")
)

// parseTarget reads a request's address. Escaped paths are refused: nothing legal needs them.
func parseTarget(u *url.URL) (target, error) {
	if u.RawPath != "" {
		return target{}, errUnknownPath
	}
	rest, ok := strings.CutPrefix(u.Path, "/v2/")
	if !ok {
		return target{}, errUnknownPath
	}
	if rest == "" {
		return target{endpoint: ping}, nil
	}
	t, err := parsePath(rest)
	if err != nil {
		return target{}, err
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(query["ns"]) != 1 {
		return target{}, errNoNamespace
	}
	if t.registry = strings.ToLower(query["ns"][0]); !isRegistry(t.registry) {
		return target{}, errNamespace
	}
	return t, nil
}

// parsePath reads <repository>/<manifests|blobs>/<reference>. A repository may itself be called
// "blobs", so it is the last but one part that counts.
func parsePath(path string) (target, error) {
	rest, reference, _ := cutLast(path)
	repository, kind, ok := cutLast(rest)
	t := target{endpoint: endpoint(kind), repository: repository}
	switch {
	case !ok || t.endpoint != manifests && t.endpoint != blobs:
		return target{}, errUnknownPath
	case !isRepository(repository):
		return target{}, errRepository
	}
	if d, ok := parseDigest(reference); ok {
		t.digest = d
		return t, nil
	}
	if t.endpoint == blobs || !isTag(reference) {
		return target{}, errReference
	}
	t.tag = reference
	return t, nil
}

func cutLast(path string) (before, last string, ok bool) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return "", path, false
	}
	return path[:i], path[i+1:], true
}

// maxName bounds registry and repository together, as the distribution API and containerd do.
const maxName = 255

// isRepository knows the grammar of the distribution API: parts of lower-case letters and digits,
// joined by single separators.
func isRepository(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for part := range strings.SplitSeq(name, "/") {
		if !isRepositoryPart(part) {
			return false
		}
	}
	return true
}

func isRepositoryPart(part string) bool {
	if part == "" || !isLowerAlnum(part[0]) || !isLowerAlnum(part[len(part)-1]) {
		return false
	}
	for i := 0; i < len(part); {
		if isLowerAlnum(part[i]) {
			i++
			continue
		}
		start := i
		for !isLowerAlnum(part[i]) { // ends: the last byte is one
			i++
		}
		switch separator := part[start:i]; {
		case separator == ".", separator == "_", separator == "__", strings.Trim(separator, "-") == "":
		default:
			return false
		}
	}
	return true
}

// isTag knows the grammar of tags: up to 128 word characters, dots and dashes; neither of the
// latter first.
func isTag(tag string) bool {
	if tag == "" || len(tag) > 128 || tag[0] == '.' || tag[0] == '-' {
		return false
	}
	for i := range len(tag) {
		if c := tag[i]; !isAlnum(c) && c != '_' && c != '.' && c != '-' {
			return false
		}
	}
	return true
}

// isRegistry says whether host is a host name, an IPv4 address, or an IPv6 address in brackets,
// with or without a port.
func isRegistry(host string) bool {
	if host == "" || len(host) > maxName {
		return false
	}
	name, port := host, ""
	if i := strings.LastIndexByte(host, ':'); i >= 0 && !strings.HasSuffix(host, "]") {
		if name, port = host[:i], host[i+1:]; !isPort(port) {
			return false
		}
	}
	if inside, ok := strings.CutPrefix(name, "["); ok {
		inside, ok = strings.CutSuffix(inside, "]")
		return ok && isIPv6(inside)
	}
	for label := range strings.SplitSeq(name, ".") {
		if !isLabel(label) {
			return false
		}
	}
	return true
}

func isLabel(label string) bool {
	if label == "" || len(label) > 63 || !isLowerAlnum(label[0]) || !isLowerAlnum(label[len(label)-1]) {
		return false
	}
	for i := range len(label) {
		if !isLowerAlnum(label[i]) && label[i] != '-' && label[i] != '_' {
			return false
		}
	}
	return true
}

func isPort(port string) bool {
	n := 0
	for i := range len(port) {
		if port[i] < '0' || port[i] > '9' {
			return false
		}
		if n = 10*n + int(port[i]-'0'); n > 65535 {
			return false
		}
	}
	return n > 0
}

func isLowerAlnum(c byte) bool { return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' }
func isAlnum(c byte) bool      { return isLowerAlnum(c) || 'A' <= c && c <= 'Z' }
