package contract

import "strings"

// Confidential is the part of the desired state that only nodes may read. An immutable Secret with the name of the
// manifest's ConfigMap, windows-services-<revision>, contains the output of Encode under ConfidentialField. The
// manifest contains the digest of the Confidential, so the revision's name covers both.
type Confidential struct {
	// Salt prevents readers of the public digest from guessing the content. All revisions have the same salt.
	Salt []byte `json:"salt"`
	// Trust are CAs for the root store of the node, as PEM. They are sorted, and each CA occurs once.
	Trust []string `json:"trust,omitempty"`
	// Mirrors are the cluster's mirror rules, as mirror.Merge returns them.
	Mirrors []MirrorRule `json:"mirrors,omitempty"`
	// Registries say which registries nodes may pull from, and how. If Registries is nil, nodes may pull from all
	// registries, and check their certificates.
	Registries *RegistrySources `json:"registries,omitempty"`
	// PullSecret is the cluster's .dockerconfigjson.
	PullSecret []byte `json:"pullSecret,omitempty"`
	// RegistryTrust are additional CAs for single registries: <host> or <host>:<port> → PEM bundle.
	RegistryTrust map[string]string `json:"registryTrust,omitempty"`
	// Environment are variables with credentials, such as a proxy's URL with user info. They override the manifest's
	// variables with the same names.
	Environment map[string]string `json:"environment,omitempty"`
	// Files are files with secrets, such as a private key. They contain no variables.
	Files []File `json:"files,omitempty"`
}

// Environment returns the variables of a node's system environment, from the manifest and from the Confidential. Names
// are compared without regard to case. If both set a variable, the value of the Confidential wins.
func Environment(m Manifest, c Confidential) map[string]string {
	all := make(map[string]string, len(m.EnvironmentVars)+len(c.Environment))
	secret := make(map[string]bool, len(c.Environment))
	for name, value := range c.Environment {
		all[name], secret[strings.ToLower(name)] = value, true
	}
	for name, value := range m.EnvironmentVars {
		if !secret[strings.ToLower(name)] {
			all[name] = value
		}
	}
	return all
}

// ConfidentialField is a key in the published Secret. Its value is the output of Encode.
const ConfidentialField = "confidential"

// PullKind is the kind of pulls that a mirror rule applies to.
type PullKind string

// Kinds of pulls. A pull with both a tag and a digest is a pull by digest.
const (
	PullByDigest PullKind = "digest"
	PullByTag    PullKind = "tag"
)

// MirrorRule lists the mirrors of one source, for one kind of pull.
type MirrorRule struct {
	// Source is host[:port][/namespace…[/repository]] or *.domain, in lower case where case doesn't matter.
	Source string   `json:"source"`
	Kind   PullKind `json:"kind"`
	// Mirrors are tried in this order. The mirror replaces the part of an image's name that matches Source.
	Mirrors []string `json:"mirrors,omitempty"`
	// NeverContactSource excludes the source itself. If it is false, the source is tried after all mirrors.
	NeverContactSource bool `json:"neverContactSource,omitempty"`
}
