package mirror

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"golang.org/x/net/idna"
)

// dockerHub is the name of Docker Hub in image names; dockerHubAddress is its address.
const (
	dockerHub        = "docker.io"
	dockerHubAddress = "registry-1.docker.io"
	dockerHubLibrary = "library/"
)

// dockerHubByName returns Docker Hub's name in stored credentials. Other hosts stay unchanged.
func dockerHubByName(host string) string {
	if host == "index."+dockerHub || host == dockerHubAddress {
		return dockerHub
	}
	return host
}

// location is a registry, a namespace or a repository.
type location struct {
	// host is in lower case, with the port if one was given. An IPv6 address has brackets. For a wildcard, host is the
	// part after the asterisk and dot.
	host string
	// path is empty or has no leading or trailing slash.
	path     string
	wildcard bool
}

// String returns the location as users write it.
func (l location) String() string {
	text := l.host
	if l.wildcard {
		text = "*." + text
	}
	if l.path != "" {
		text += "/" + l.path
	}
	return text
}

// covers reports whether l contains other and every name below other. Neither location may be a wildcard.
func (l location) covers(other location) bool {
	_, ok := below(other.path, l.path)
	return ok && withoutDefaultPort(l.host) == withoutDefaultPort(other.host)
}

// defaultPort is a registry's port if its name has none. With this port the name differs but the registry is the same:
// adding the port must not bypass a rule against contacting a registry.
const defaultPort = ":443"

func withoutDefaultPort(host string) string { return strings.TrimSuffix(host, defaultPort) }

// SplitHost returns the name and the port of a host, as in addresses, in the form for comparisons. The name is in lower
// case and in its DNS form, without a final dot and without brackets, and an IP address is in its shortest form. The
// port is a number, or empty.
func SplitHost(host string) (name, port string) {
	u := url.URL{Host: host}
	name, port = u.Hostname(), u.Port()
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		name = ascii // connections also use this name
	}
	name = strings.TrimRight(strings.ToLower(name), ".")
	if ip, err := netip.ParseAddr(name); err == nil {
		name = ip.Unmap().String()
	}
	if n, err := strconv.ParseUint(port, 10, 16); err == nil {
		port = strconv.FormatUint(n, 10)
	}
	return name, port
}

// CanonicalHost returns a host's name in rules and addresses: the form of SplitHost without the default port.
// Docker Hub gets the name in its images.
func CanonicalHost(host string) string {
	name, port := SplitHost(host)
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	if port != "" {
		name += ":" + port
	}
	return dockerHubByName(withoutDefaultPort(name))
}

// below returns the part of path after prefix, without the slash between them, if prefix ends at the end of a component
// of path.
func below(path, prefix string) (string, bool) {
	if prefix == "" || path == prefix {
		return strings.TrimPrefix(path, prefix), true
	}
	return strings.CutPrefix(path, prefix+"/")
}

// parseSource parses a source: a location, or *.domain.
func parseSource(text string) (location, error) {
	domain, wildcard := strings.CutPrefix(text, "*.")
	if !wildcard {
		return parseLocation(text)
	}
	if strings.ContainsAny(domain, "/:@") {
		return location{}, errors.New("a wildcard has neither port nor path: *.domain")
	}
	domain = strings.ToLower(domain)
	return location{host: domain, wildcard: true}, checkDomain(domain)
}

// parseLocation parses host[:port][/namespace…[/repository]]. It converts the host to lower case, because the case of
// host names doesn't matter.
func parseLocation(text string) (location, error) {
	switch {
	case text == "":
		return location{}, errors.New("it is empty")
	case len(text) > longestLocation:
		return location{}, fmt.Errorf("it has more than %d characters", longestLocation)
	case strings.Contains(text, "://"):
		return location{}, errors.New("it has a scheme; leave https:// away")
	case strings.ContainsAny(text, "@"):
		return location{}, errors.New("it has a digest or a user name; only host, port and path may be given")
	}
	host, path, hasPath := strings.Cut(text, "/")
	host = strings.ToLower(host)
	if err := checkHost(host); err != nil {
		return location{}, err
	}
	if !hasPath {
		return location{host: host}, nil
	}
	return location{host: host, path: path}, checkRepository(path)
}

// longestLocation is the limit of a host name and a repository name together: 253 and 255
// characters, a port and two separators.
const longestLocation = 253 + 1 + 5 + 1 + 255

// checkHost checks host[:port] in lower case. An image name must be able to begin with the host. Otherwise containerd
// would read the host as a part of a repository on Docker Hub.
func checkHost(host string) error {
	name, port, hasPort, err := splitPort(host)
	if err != nil {
		return err
	}
	if hasPort {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return fmt.Errorf("%s is no port", quote(port))
		}
	}
	if strings.HasPrefix(name, "[") {
		return nil // splitPort checked the address
	}
	if !hasPort && name != "localhost" && !strings.Contains(name, ".") {
		return fmt.Errorf("%s has neither a dot nor a port, so image names that begin with it are of Docker Hub",
			quote(name))
	}
	return checkDomain(name)
}

// splitPort splits host[:port]. IPv6 addresses need brackets, as in URLs.
func splitPort(host string) (name, port string, hasPort bool, err error) {
	if inner, ok := strings.CutPrefix(host, "["); ok {
		address, rest, closed := strings.Cut(inner, "]")
		if ip, err := netip.ParseAddr(address); !closed || err != nil || !ip.Is6() || ip.Zone() != "" || ip.Is4In6() {
			return "", "", false, errors.New("within brackets there must be an IPv6 address without a zone")
		}
		name = "[" + address + "]"
		if rest == "" {
			return name, "", false, nil
		}
		if port, ok = strings.CutPrefix(rest, ":"); !ok {
			return "", "", false, errors.New("after an IPv6 address only a port may follow")
		}
		return name, port, true, nil
	}
	name, port, hasPort = strings.Cut(host, ":")
	if strings.Contains(port, ":") {
		return "", "", false, errors.New("it has more than one colon; an IPv6 address needs brackets")
	}
	return name, port, hasPort, nil
}

// checkDomain checks a host name or an IPv4 address: labels of letters, digits and inner hyphens.
func checkDomain(name string) error {
	if len(name) > 253 {
		return errors.New("its host has more than 253 characters")
	}
	for label := range strings.SplitSeq(name, ".") {
		switch {
		case label == "":
			return errors.New("its host is empty or has an empty part")
		case len(label) > 63:
			return errors.New("a part of its host has more than 63 characters")
		case label[0] == '-' || label[len(label)-1] == '-':
			return errors.New("a part of its host starts or ends with a hyphen")
		case strings.ContainsFunc(label, func(r rune) bool { return r != '-' && !isLetterOrDigit(r) }):
			return errors.New("its host has a character other than letters, digits, hyphens and dots")
		}
	}
	return nil
}

// checkRepository checks a repository's name, or a namespace.
func checkRepository(path string) error {
	_, err := reference.WithName("registry.invalid/" + path)
	if err == nil {
		return nil
	}
	if slices.Contains(strings.Split(path, "/"), "") {
		return errors.New("its path has an empty part")
	}
	if _, lower := reference.WithName("registry.invalid/" + strings.ToLower(path)); lower == nil {
		return errors.New("its path has a capital; names of repositories have none")
	}
	return fmt.Errorf("%s can't be the name of a repository: %w", quote(path), err)
}

func isLetterOrDigit(r rune) bool { return 'a' <= r && r <= 'z' || '0' <= r && r <= '9' }
