package mirror

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Endpoint is the node-local resolver as containerd reaches it.
type Endpoint struct {
	// URL is where it listens: http://127.0.0.1:<port>.
	URL string
	// Token is sent with every request, see Authorization.
	Token string
	// Hosts are registries, as image names call them, for which the resolver is asked although no
	// rule needs it: those that the pull secret or the cluster's trust names, see PullSecret.Hosts.
	// What is no host name is left out.
	Hosts []string
	// CAs are files of CA certificates (PEM, absolute path) for one registry
	// each: host[:port] → path. They are used when containerd goes to a registry by itself. They
	// must be there before containerd reads what HostsFiles gives, or it refuses to pull.
	CAs map[string]string
	// Taken says that another program listens at the URL. Then nobody is sent there; URL and Token are
	// not used, and may be empty.
	Taken bool
}

// TokenHeader carries the token by which the resolver recognizes containerd. It is the one header
// that containerd leaves out of its debug log.
const TokenHeader = "Authorization"

// Authorization is the value of TokenHeader for a token, which is carried as a password.
func Authorization(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("containerd:"+token))
}

// HostsFile is the name of each file within its directory.
const HostsFile = "hosts.toml"

// HostsFiles gives for containerd's config_path the content of each directory's hosts.toml:
// directory name → content. What else is there is to be removed: containerd
// takes the first directory that fits.
//
// Each file sends containerd to the resolver first. What follows is for when the resolver is down,
// and says only what containerd can say without breaking a rule: mirrors of a whole registry if
// nothing below it has rules of its own, and the registry itself unless something on it must not be
// contacted. If another program has the resolver's place, only that is left. An error is about the
// endpoint.
func HostsFiles(rules Rules, endpoint Endpoint) (map[string][]byte, error) {
	if err := endpoint.check(); err != nil {
		return nil, fmt.Errorf("writing hosts files: %w", err)
	}
	registries := map[string][]string{} // directory → registries
	for host := range rules.registries(endpoint) {
		name := directory(host)
		registries[name] = append(registries[name], host)
	}
	files := make(map[string][]byte, len(registries)+1)
	for name, hosts := range registries {
		file, err := encode(endpoint.past(rules.steps(hosts, endpoint)))
		if err != nil {
			return nil, fmt.Errorf("writing the hosts file for %s: %w", name, err)
		}
		files[name] = file
	}
	if steps := rules.defaultSteps(endpoint); steps != nil {
		file, err := encode(endpoint.past(steps))
		if err != nil {
			return nil, fmt.Errorf("writing the hosts file for all other hosts: %w", err)
		}
		files[defaultDirectory] = file
	}
	return files, nil
}

// past are the steps without the resolver, which comes first, if another program has its place. If
// nothing is left that containerd may do by itself, it is sent where nobody is.
func (e Endpoint) past(steps []step) []step {
	switch {
	case !e.Taken:
		return steps
	case len(steps) > 1:
		return steps[1:]
	}
	return []step{{server: "https://" + nowhere, capabilities: both()}}
}

// nowhere is a name that nobody can have (RFC 6761), and that says why. The dot at its end keeps
// Windows from trying it below the domains of the host.
const nowhere = "another-program-has-the-port-of-the-mirror-resolver.invalid."

func (e Endpoint) check() error {
	if e.Taken {
		return nil
	}
	u, err := url.Parse(e.URL)
	if err != nil || u.Scheme != "http" || u.Port() == "" || u.Path != "" || u.RawQuery != "" || u.User != nil {
		return errors.New("the resolver's URL is not http://<address>:<port>")
	}
	if e.Token == "" || strings.ContainsFunc(e.Token, func(r rune) bool { return r <= ' ' || '~' < r }) {
		return errors.New("the resolver's token is empty or has characters that a header can't have")
	}
	return nil
}

// windowsImages is the registry of Windows' base images and of the image that every pod needs.
const windowsImages = "mcr.microsoft.com"

// registries are all hosts that get a file of their own.
func (r Rules) registries(endpoint Endpoint) map[string]bool {
	all := map[string]bool{}
	if len(r.wildcards) > 0 || r.scopes.refuse() || r.forbidsSome() {
		all[windowsImages] = true // it must not suffer from what holds for all hosts without a folder
	}
	for _, e := range r.entries {
		if host := e.source.host; !e.source.wildcard && checkDirectory(e.source) == nil {
			all[host] = true
			if _, _, hasPort, _ := splitPort(host); !hasPort &&
				checkDirectory(location{host: host + defaultPort}) == nil {
				all[host+defaultPort] = true
			}
		}
	}
	for _, scope := range r.scopes.allowed {
		if !scope.wildcard && checkDirectory(location{host: scope.host}) == nil {
			all[scope.host] = true
		}
	}
	for _, host := range slices.AppendSeq(slices.Clone(endpoint.Hosts), maps.Keys(endpoint.CAs)) {
		l, err := parseLocation(host)
		if err == nil && l.path == "" && checkDirectory(l) == nil {
			all[l.host] = true
		}
	}
	return all
}

// steps are where containerd goes, in order, for the registries that share a directory; that is
// one, but for addresses that look alike.
func (r Rules) steps(hosts []string, endpoint Endpoint) []step {
	slices.Sort(hosts)
	never := slices.ContainsFunc(hosts, func(host string) bool { return r.nearNever(location{host: host}) })
	steps := []step{resolverStep(endpoint)}
	if slices.ContainsFunc(hosts, r.refusesSome) {
		return steps // what is refused there, only the resolver can tell
	}
	if len(hosts) > 1 || ambiguous(hosts[0]) {
		if !never {
			last := step{} // the registry that is asked for, whichever it is
			if len(hosts) == 1 {
				last.ca, last.insecure = endpoint.CAs[hosts[0]],
					r.scopes.insecure.cover(location{host: hosts[0]})
			}
			steps = append(steps, last)
		}
		return steps
	}
	host := hosts[0]
	if about := r.about(host); len(about) == 1 && about[0].source.path == "" {
		steps = append(steps, r.mirrorSteps(host, about[0], endpoint)...)
	}
	if !never {
		steps = append(steps, step{
			server: "https://" + address(host), capabilities: both(), ca: endpoint.CAs[host],
			insecure: r.scopes.insecure.cover(location{host: host}),
		})
	}
	return steps
}

// about are the entries that concern some repository of a registry.
func (r Rules) about(host string) []entry {
	var all []entry
	whole := false
	hosts := []string{host, withoutDefaultPort(host)}
	for _, name := range slices.Compact(hosts) {
		for _, e := range r.byHost[name] {
			all = append(all, e)
			whole = whole || e.source.path == ""
		}
	}
	if domain, ok := r.findDomain(host); ok && !whole {
		all = append(all, domain)
	}
	return all
}

// defaultSteps are for all hosts without a directory: needed for wildcards, and where some registry
// must not be contacted or some images are refused. The source is left to containerd, which knows
// its name, unless something is forbidden anywhere: that could be named in ways that have no
// directory. quay.io:0443 is quay.io for containerd; the resolver takes no such name.
func (r Rules) defaultSteps(endpoint Endpoint) []step {
	if r.forbidsSome() || r.scopes.refuse() {
		return []step{resolverStep(endpoint)}
	}
	for _, e := range r.entries {
		if e.source.wildcard || checkDirectory(e.source) != nil { // its hosts have no folder of their own
			return []step{resolverStep(endpoint), {}}
		}
	}
	return nil
}
