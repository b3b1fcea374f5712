package mirror

import (
	"encoding/base64"
	"fmt"
)

// TokenHeader contains the token that identifies containerd to the resolver. It is the only header that containerd
// omits from its debug log.
const TokenHeader = "Authorization"

// Authorization returns the value of TokenHeader for a token, which is sent as a password.
func Authorization(token string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("containerd:"+token))
}

// hostsFile names no other registry. So if the resolver is down, containerd pulls nothing, and breaks no rule. A short
// timeout is enough, because a resolver on loopback accepts a connection at once or not at all. Without this timeout,
// Windows would wait two seconds before it gives up on a closed port.
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

// HostsFile returns containerd's file for all registries, see contract.PathHosts. It sends containerd to the resolver
// at url, with the resolver's token. If url is empty, it sends containerd to a host that can't exist. The caller must
// remove the folders of single registries, because containerd prefers them.
//
// One file serves all registries, because folders for single registries wouldn't be enough. A registry has other
// spellings: containerd takes quay.io:0443 for quay.io. And rules about domains don't name their registries.
func HostsFile(url, token string) string {
	if url == "" {
		return fmt.Sprintf(hostsFile, nowhere)
	}
	return fmt.Sprintf(hostsFile+hostsHeader, url, TokenHeader, Authorization(token))
}
