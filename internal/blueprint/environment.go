package blueprint

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Environment variables of a proxy, as every program understands them.
const (
	variableHTTPProxy  = "HTTP_PROXY"
	variableHTTPSProxy = "HTTPS_PROXY"
	variableNoProxy    = "NO_PROXY"
)

// proxyVariables are watched on every node: without a proxy they must not be set.
func proxyVariables() []string {
	return []string{variableHTTPProxy, variableHTTPSProxy, variableNoProxy}
}

// ProxyFromEnvironment reads the proxy that the operator itself was given. lookup is os.LookupEnv or like it.
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

// environment gives the variables that nodes get. A proxy that wants a password is left out: whatever is in a manifest can be read by
// everyone who may read ConfigMaps in the operator's namespace.
func environment(p Proxy) (variables map[string]string, off []Off) {
	variables = p.variables()
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		if name != variableNoProxy && hasCredentials(variables[name]) {
			delete(variables, name)
			off = append(off, Off{
				Feature: FeatureProxy,
				Reason:  fmt.Sprintf("%s has credentials, which are not published; use a proxy that lets the nodes' addresses through", name),
			})
		}
	}
	if len(variables) == 0 {
		variables = nil
	}
	return variables, off
}

// hasCredentials is true in doubt: an address that is no URL may still hold a password.
func hasCredentials(address string) bool {
	u, err := url.Parse(address)
	return err != nil || u.User != nil || strings.Contains(address, "@")
}
