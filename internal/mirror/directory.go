package mirror

import (
	"fmt"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
)

// defaultDirectory is the directory that containerd uses for a host without its own directory.
const defaultDirectory = "_default"

// directory returns the folder below config_path where containerd on Windows first looks for a registry's
// hosts.toml: the last colon and the port become _<port>_, and all other colons are removed. Addresses may share a
// folder, because all files are the same. Source: hostPaths and hostDirectory of containerd v2.4.2,
// core/remotes/docker/config.
func directory(host string) string {
	if colon := strings.LastIndexByte(host, ':'); colon > 0 {
		host = host[:colon] + "_" + host[colon+1:] + "_"
	}
	return strings.ReplaceAll(host, ":", "")
}

// checkDirectory returns why Windows can't have a folder for a source. A wildcard needs no folder.
func checkDirectory(source Location) error {
	if source.wildcard {
		return nil
	}
	// The longest name in the folder is the temporary file, which is then renamed.
	if err := contract.CheckPath(contract.DirRegistries + `\` + directory(source.Host) + `\` + HostsFile +
		".tmp"); err != nil {
		return fmt.Errorf("no folder of Windows can have the registry's name: %w", err)
	}
	return nil
}
