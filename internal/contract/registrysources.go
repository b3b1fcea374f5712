package contract

// RegistrySources say which registries nodes may pull from, and whose certificates they don't
// check. Each entry is host[:port][/namespace…[/repository]] or *.domain, in lower case where case
// does not count, and stands for everything below it.
type RegistrySources struct {
	// Blocked are never asked, be it as sources or as mirrors, and no image is pulled whose name is
	// below one.
	Blocked []string `json:"blocked,omitempty"`
	// Restricted says that nodes pull only images whose names are below an entry of Allowed. Mirrors may be anywhere.
	Restricted bool     `json:"restricted,omitempty"`
	Allowed    []string `json:"allowed,omitempty"`
	// Always are repositories that every node needs: Blocked and Allowed don't apply to them.
	Always []string `json:"always,omitempty"`
	// Insecure may have any certificate, or speak http without TLS.
	Insecure []string `json:"insecure,omitempty"`
}
