package mirror

import (
	"encoding/base64"
	"fmt"
)

// Endpoint is the node-local resolver for containerd.
type Endpoint struct {
	// URL is the resolver's address: http://127.0.0.1:<port>. While another program uses the port, URL and Token are
	// empty. Then the files direct containerd to a host that can't exist.
	URL string
	// Token is sent with every request, see Authorization.
	Token string
	// Hosts are registries, in the form of image names, that get a file although no rule needs it: the registries that
	// the pull secret or the cluster's trust names. Invalid host names are ignored.
	Hosts []string
}

// TokenHeader contains the token that identifies containerd to the resolver. It is the only header that containerd
// omits from its debug log.
const TokenHeader = "Authorization"

// Authorization returns the value of TokenHeader for a token, which is sent as a password.
func Authorization(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("containerd:"+token))
}

// HostsFile is the name of each file within its directory.
const HostsFile = "hosts.toml"

// hostsFile is the file that containerd reads. It names no other registry, so without the resolver nothing is pulled,
// and no rule is broken. A short timeout is enough, because a resolver on loopback accepts at once or not at all, and
// Windows takes two seconds to give up on a closed port.
const hostsFile = `# Written by windows-instance-config-daemon from the cluster's mirror rules. Changes are undone.
server = '%s'
capabilities = ['pull', 'resolve']
dial_timeout = '1s'
`

const hostsHeader = `
[header]
%s = ['%s']
`

// nowhere is a name that can't exist (RFC 6761) and that explains the problem. Its final dot prevents Windows from
// appending the host's domains.
const nowhere = "https://another-program-has-the-port-of-the-mirror-resolver.invalid."

// HostsFiles returns the content of each directory's hosts.toml below containerd's config_path: directory name →
// content. The caller must remove all other files from config_path, because containerd uses the first directory that
// matches.
func HostsFiles(rules Rules, endpoint Endpoint) map[string][]byte {
	file := fmt.Appendf(nil, hostsFile, nowhere)
	if endpoint.URL != "" {
		file = fmt.Appendf(nil, hostsFile+hostsHeader, endpoint.URL, TokenHeader, Authorization(endpoint.Token))
	}
	files := map[string][]byte{}
	add := func(registry Location) {
		if checkDirectory(registry) != nil {
			return
		}
		files[directory(registry.Host)] = file
		if _, port := registry.split(); port == "" {
			files[directory(registry.Host+":"+defaultPort)] = file
		}
	}
	needsDefault := rules.refuse()
	for source, e := range rules.entries {
		// A registry that must not be contacted has spellings without their own directory: containerd takes
		// quay.io:0443 for quay.io.
		needsDefault = needsDefault || e.never || source.wildcard || checkDirectory(source) != nil
		if !source.wildcard {
			add(source)
		}
	}
	for _, host := range endpoint.Hosts {
		if l, err := parseLocation(host); err == nil && l.Path == "" {
			add(l)
		}
	}
	if needsDefault {
		files[defaultDirectory] = file
	}
	return files
}
