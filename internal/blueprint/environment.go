package blueprint

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/windows-nodes/wmco/internal/contract"
)

const (
	variableHTTPProxy  = "HTTP_PROXY"
	variableHTTPSProxy = "HTTPS_PROXY"
	variableNoProxy    = "NO_PROXY"
)

// proxyVariables returns the variables that the daemon manages on every node. Without a proxy, it must unset them.
func proxyVariables() []string {
	return []string{variableHTTPProxy, variableHTTPSProxy, variableNoProxy}
}

// ProxyFromEnvironment reads the operator's own proxy. lookup is os.LookupEnv or a substitute.
func ProxyFromEnvironment(lookup func(string) (string, bool)) Proxy {
	get := func(name string) string {
		value, _ := lookup(name)
		return strings.TrimSpace(value)
	}
	return Proxy{HTTP: get(variableHTTPProxy), HTTPS: get(variableHTTPSProxy), None: get(variableNoProxy)}
}

func (p Proxy) variables() map[string]string {
	all := map[string]string{variableHTTPProxy: p.HTTP, variableHTTPSProxy: p.HTTPS, variableNoProxy: p.None}
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	return all
}

// environment splits the proxy variables into public variables and variables with a password (secret). An invalid
// variable keeps its previous value, and adds a problem to rejected. Without a proxy, NO_PROXY is omitted: it would
// have no effect, but each change would restart every service.
func environment(p Proxy, before Desired) (public, secret map[string]string, rejected []*contract.Problem) {
	variables := p.variables()
	had := contract.Environment(before.Manifest, before.Confidential)
	public, secret = map[string]string{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		value := variables[name]
		if why := flaw(name, value); why != "" {
			rejected = append(rejected, contract.NewProblem(contract.ReasonProxyInvalid, "%s of the cluster's proxy %s",
				name, why))
			if value = had[name]; value == "" {
				continue
			}
		}
		if name != variableNoProxy && hasCredentials(value) {
			secret[name] = value
		} else {
			public[name] = value
		}
	}
	if len(secret) == 0 && public[variableHTTPProxy]+public[variableHTTPSProxy] == "" {
		delete(public, variableNoProxy)
	}
	return public, secret, rejected
}

// maxVariable is the maximum length of an environment variable on Windows, in characters.
const maxVariable = 32767

// flaw returns why a variable can't have this value, or "". The text doesn't repeat the value, which may contain a
// password.
func flaw(name, value string) string {
	switch {
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return "has control characters or is not UTF-8"
	case utf8.RuneCountInString(value) >= maxVariable:
		return "is longer than Windows allows"
	case name == variableNoProxy:
		return ""
	}
	u, err := url.Parse(value)
	switch {
	case err != nil || u.Opaque != "":
		return "is not a URL" // the parser's message would repeat the value
	case u.Scheme != "http" && u.Scheme != "https":
		return "is not a URL that begins with http:// or https://"
	case u.Hostname() == "":
		return "has no host"
	case strings.ContainsFunc(value, unicode.IsSpace):
		return "has a space"
	}
	return ""
}

// hasCredentials reports whether an address has a password. If it can't parse the address, it returns true.
func hasCredentials(address string) bool {
	u, err := url.Parse(address)
	return err != nil || u.User != nil || strings.Contains(address, "@")
}
