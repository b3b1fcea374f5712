package mirror

import (
	"fmt"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// defaultDirectory is where containerd looks for a host that has no directory.
const defaultDirectory = "_default"

// directory names the folder below config_path in which containerd on Windows looks first for a
// registry's hosts.toml: the last colon and what follows becomes _<port>_, all other colons are
// left away. Source: hostPaths and hostDirectory of containerd v2.4.2, core/remotes/docker/config.
func directory(host string) string {
	if colon := strings.LastIndexByte(host, ':'); colon > 0 {
		host = host[:colon] + "_" + host[colon+1:] + "_"
	}
	return strings.ReplaceAll(host, ":", "")
}

// checkDirectory says why Windows can't have a folder for a source. A wildcard needs none of its
// own.
func checkDirectory(source location) error {
	if source.wildcard {
		return nil
	}
	// The longest that is written there is the temporary file that is then renamed.
	if err := contract.CheckPath(contract.DirRegistries + `\` + directory(source.host) + `\` + HostsFile +
		".tmp"); err != nil {
		return fmt.Errorf("no folder of Windows can have the registry's name: %w", err)
	}
	return nil
}

// ambiguous says whether containerd might look into the host's folder for another host too. Without
// a folder host_port_, the second place where it looks for 10.1.2.1:80 is 10.1.2.180; and colons
// within an IPv6 address are lost.
func ambiguous(host string) bool {
	last := host[len(host)-1]
	return host[0] == '[' || !strings.Contains(host, ":") && '0' <= last && last <= '9'
}
