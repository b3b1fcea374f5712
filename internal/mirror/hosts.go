package mirror

// Endpoint is the node-local resolver as containerd reaches it.
type Endpoint struct {
	// URL is where it listens: http://127.0.0.1:<port>.
	URL string
	// Token is sent with every request in the header TokenHeader.
	Token string
	// Hosts are registries, as image names call them, for which the resolver is asked although no rule needs it: those that the pull secret or
	// the cluster's trust names.
	Hosts []string
	// Authorities are files with certificate authorities (PEM, absolute path) for one registry each: host[:port] → path. They must be there before
	// containerd reads what HostsFiles gives, or it refuses to pull.
	Authorities map[string]string
}

// TokenHeader carries the token by which the resolver knows containerd.
const TokenHeader = "X-Wmco-Resolver-Token"

// HostsFile is the name of each file within its directory.
const HostsFile = "hosts.toml"

// HostsFiles gives for containerd's config_path the content of each directory's hosts.toml: directory name → content. What else is there is to be
// removed; see Stale.
func HostsFiles(_ Rules, _ Endpoint) (map[string][]byte, error) { return map[string][]byte{}, nil }
