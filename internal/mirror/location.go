package mirror

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"golang.org/x/net/idna"
)

// dockerHub is the name of Docker Hub in image names. dockerHubAddress is the address of its registry.
const (
	dockerHub        = "docker.io"
	dockerHubAddress = "registry-1.docker.io"
	dockerHubLibrary = "library/"
)

// Location is a registry, a namespace, a repository or a domain. Each location has exactly one form, so Locations can
// be compared with ==. Parse a text once, and then pass the Location instead of the text.
type Location struct {
	// Host is the registry as in image names and credentials, in the form that canonical returns. For the domain
	// *.example.com, Host is example.com.
	Host string
	// Path is a namespace or a repository without outer slashes. It is empty for a registry or a domain.
	Path     string
	wildcard bool
}

// String returns the location as users write it.
func (l Location) String() string {
	text := l.Host
	if l.wildcard {
		text = "*." + text
	}
	if l.Path != "" {
		text += "/" + l.Path
	}
	return text
}

// Address returns the host and port of the registry. Docker Hub's address differs from its name.
func (l Location) Address() string {
	if l.Host == dockerHub {
		return dockerHubAddress
	}
	return l.Host
}

func (l Location) registry() Location { return Location{Host: l.Host} }

// withoutPort returns the location's registry without a port.
func (l Location) withoutPort() Location {
	name, _ := l.split()
	return Location{Host: name}
}

// split splits Host into the name and the port. An IPv6 address keeps its brackets. `port` may be empty.
func (l Location) split() (name, port string) {
	colon := strings.LastIndexByte(l.Host, ':')
	if colon < 0 || strings.HasSuffix(l.Host, "]") {
		return l.Host, ""
	}
	return l.Host[:colon], l.Host[colon+1:]
}

// IsLoopback reports whether the registry has a loopback address.
func (l Location) IsLoopback() bool {
	name, _ := SplitHost(l.Host)
	address, _ := netip.ParseAddr(name)
	return name == "localhost" || address.IsLoopback()
}

// `contains` reports whether `other` equals l or lies below l. If l is a domain, the host of `other` must lie below
// this domain. `other` itself must not be a domain.
func (l Location) contains(other Location) bool {
	if l.wildcard {
		name, _ := other.split()
		return strings.HasSuffix(name, "."+l.Host)
	}
	_, ok := below(other.Path, l.Path)
	return ok && l.Host == other.Host
}

// At returns the location of a repository at a host. It accepts any spelling of the host, and checks nothing. If
// repository is empty, At returns the registry. For a repository of Docker Hub without a slash, At adds library/.
func At(host, repository string) Location {
	l := Location{Host: canonical(host), Path: repository}
	if l.Host == dockerHub && repository != "" && !strings.Contains(repository, "/") {
		l.Path = dockerHubLibrary + repository
	}
	return l
}

// ParseRepository returns a repository. host is the registry in the image name, and path is the repository's name.
func ParseRepository(host, path string) (Location, error) {
	return At(host, path), cmp.Or(checkHost(strings.ToLower(host)), checkRepository(path))
}

// SplitHost splits a host, as in addresses, into its name and port, and converts both to a form that can be compared.
// The name is in lower case and in its DNS form, without a final dot and without brackets. An IP address is in its
// shortest form. The port is a number without leading zeros, or empty.
func SplitHost(host string) (name, port string) {
	u := url.URL{Host: host}
	name, port = u.Hostname(), u.Port()
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		name = ascii // connections use this form as well
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

// defaultPort is the port of a registry whose name has no port. A name with this port means the same registry as the
// name without a port. Otherwise a user could add the port to bypass a rule against contacting the registry.
const defaultPort = "443"

// canonical returns the unique name of a registry: the form of SplitHost without the default port, and with brackets
// around an IPv6 address. If containerd would not recognise the name alone as a registry, canonical adds the port. For
// an address of Docker Hub, it returns docker.io.
func canonical(host string) string {
	name, port := SplitHost(host)
	needsPort := name != "localhost" && !strings.ContainsAny(name, ".:")
	if strings.Contains(name, ":") {
		name = "[" + name + "]"
	}
	switch {
	case needsPort:
		return name + ":" + cmp.Or(port, defaultPort)
	case port != "" && port != defaultPort:
		return name + ":" + port
	case name == "index."+dockerHub || name == dockerHubAddress:
		return dockerHub
	}
	return name
}

// `below` reports whether path equals prefix, or begins with prefix and a slash. In the second case, it also returns
// the part of path after the slash. If prefix is empty, it returns path and true.
func below(path, prefix string) (string, bool) {
	if prefix == "" || path == prefix {
		return strings.TrimPrefix(path, prefix), true
	}
	return strings.CutPrefix(path, prefix+"/")
}

// parseSource parses the source of a rule: a location, or *.domain.
func parseSource(text string) (Location, error) {
	domain, wildcard := strings.CutPrefix(text, "*.")
	if !wildcard {
		return parseLocation(text)
	}
	if strings.ContainsAny(domain, "/:@") {
		return Location{}, errors.New("a wildcard has neither port nor path: *.domain")
	}
	domain = strings.ToLower(domain)
	return Location{Host: domain, wildcard: true}, checkForm(domain)
}

// parseLocation parses host[:port][/namespace…[/repository]].
func parseLocation(text string) (Location, error) {
	switch {
	case text == "":
		return Location{}, errors.New("it is empty")
	case len(text) > longestLocation:
		return Location{}, fmt.Errorf("it has more than %d characters", longestLocation)
	case strings.Contains(text, "://"):
		return Location{}, errors.New("it has a scheme; omit https://")
	case strings.ContainsAny(text, "@"):
		return Location{}, errors.New("it has a digest or a user name; only host, port and path may be given")
	}
	host, path, hasPath := strings.Cut(text, "/")
	if err := checkHost(strings.ToLower(host)); err != nil {
		return Location{}, err
	}
	l := Location{Host: canonical(host), Path: path}
	if !hasPath {
		return l, nil
	}
	return l, checkRepository(path)
}

// longestLocation allows for a host name, a colon, a port, a slash and a repository name of the maximum lengths.
const longestLocation = 253 + 1 + 5 + 1 + 255

// checkHost checks host[:port] in lower case. It refuses a host that containerd would not recognise as a registry: at
// the beginning of an image name, containerd would read such a host as a part of a repository on Docker Hub.
func checkHost(host string) error {
	if err := checkForm(host); err != nil {
		return err
	}
	name, port := Location{Host: host}.split()
	ip, err := netip.ParseAddr(strings.Trim(name, "[]"))
	isIPv6 := strings.HasPrefix(name, "[")
	number, portErr := strconv.ParseUint(port, 10, 16)
	switch {
	case isIPv6 && (err != nil || !ip.Is6() || ip.Is4In6()):
		return errors.New("within brackets there must be an IPv6 address without a zone")
	case port != "" && (portErr != nil || number == 0 || port[0] == '0'):
		return fmt.Errorf("%s is not a port", quote(port))
	case port == "" && !isIPv6 && name != "localhost" && !strings.Contains(name, "."):
		return fmt.Errorf("%s has neither a dot nor a port, so image names that begin with it belong to Docker Hub",
			quote(name))
	}
	return nil
}

var hostForm = regexp.MustCompile("^" + reference.DomainRegexp.String() + "$")

// checkForm checks that text has the form of a host name or an address, with or without a port.
func checkForm(text string) error {
	name, _ := Location{Host: text}.split()
	switch {
	case !hostForm.MatchString(text):
		return fmt.Errorf("%s is not a host: a name has letters, digits, inner hyphens and single dots, a port is a "+
			"number, and an IPv6 address has brackets", quote(text))
	case len(name) > 253 || slices.ContainsFunc(strings.Split(name, "."), func(s string) bool { return len(s) > 63 }):
		return errors.New("its host has more than 253 characters, or a part of it has more than 63")
	}
	return nil
}

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
