package contract

// RegistrySources lists the registries that nodes may pull from, and the registries whose certificates nodes don't
// check. Each entry is host[:port][/namespace…[/repository]] or *.domain, in lower case where case doesn't matter,
// and includes everything below it.
type RegistrySources struct {
	// Blocked registries are never contacted, as sources or as mirrors. Images with names below them are not pulled.
	Blocked []string `json:"blocked,omitempty"`
	// Restricted means that nodes pull only images whose names are below an entry of Allowed. Mirrors may be anywhere.
	Restricted bool     `json:"restricted,omitempty"`
	Allowed    []string `json:"allowed,omitempty"`
	// Always are repositories that every node needs: Blocked and Allowed don't apply to them.
	Always []string `json:"always,omitempty"`
	// Insecure registries may have any certificate, or use http without TLS.
	Insecure []string `json:"insecure,omitempty"`
}
