package mirror

import (
	"encoding/base64"
	"fmt"
)

// TokenHeader is the HTTP header with the token that identifies containerd to the resolver. containerd writes all other
// headers to its debug log, but omits this header.
const TokenHeader = "Authorization"

// Authorization returns the value of TokenHeader for a token: Basic authentication with the token as the password.
func Authorization(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("containerd:"+token))
}

// hostsFile is the template of a file that sends containerd only to the resolver. So if the resolver is down,
// containerd pulls nothing, and breaks no rule. A short timeout is enough, because a loopback address accepts a
// connection at once or not at all. By default, Windows waits two seconds for a closed port.
const hostsFile = `# Written by windows-instance-config-daemon from the cluster's mirror rules. Changes are undone.
server = '%s'
capabilities = ['pull', 'resolve']
dial_timeout = '1s'
`

const hostsHeader = `
[header]
%s = ['%s']
`

// `nowhere` is a host name that can't exist (RFC 6761). containerd's error contains this name, whose words explain the
// problem. The final dot prevents Windows from appending the host's domains.
const nowhere = "https://another-program-has-the-port-of-the-mirror-resolver.invalid."

// HostsFile returns the content of contract.PathHosts, the file that containerd reads for all registries. The file
// sends containerd to the resolver at url, with the resolver's token. If url is empty, the file sends containerd to a
// host that can't exist. The caller must remove the folders of single registries, because containerd prefers them.
//
// Folders for single registries would not be enough: the name of a registry has several spellings (for containerd,
// quay.io:0443 is the same as quay.io), and rules for a domain don't list the registries in that domain.
func HostsFile(url, token string) string {
	if url == "" {
		return fmt.Sprintf(hostsFile, nowhere)
	}
	return fmt.Sprintf(hostsFile+hostsHeader, url, TokenHeader, Authorization(token))
}
