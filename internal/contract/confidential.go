package contract

import "strings"

// Confidential is the part of the desired state that only nodes may read. It is published in the
// immutable Secret that has the name of the manifest's ConfigMap, windows-services-<revision>, as
// JSON under ConfidentialField. The manifest names its digest, so the revision covers both.
type Confidential struct {
	// Salt keeps readers of the digest, which is public, from guessing the content. It is the same in all revisions.
	Salt []byte `json:"salt"`
	// Trust are CAs for the root store of the node, each once, as PEM, sorted.
	Trust []string `json:"trust,omitempty"`
	// Mirrors are the cluster's mirror rules, merged and in their order.
	Mirrors []MirrorRule `json:"mirrors,omitempty"`
	// Registries say which registries nodes may pull from, and how. If Registries is nil, nodes may pull from all
	// registries, and check their certificates.
	Registries *RegistrySources `json:"registries,omitempty"`
	// PullSecret is the cluster's .dockerconfigjson.
	PullSecret []byte `json:"pullSecret,omitempty"`
	// RegistryTrust are further CAs for one registry each: <host> or <host>:<port> → PEM
	// bundle.
	RegistryTrust map[string]string `json:"registryTrust,omitempty"`
	// Environment are variables that hold credentials, such as a proxy's URL with user info. They
	// win over the manifest's of the same name.
	Environment map[string]string `json:"environment,omitempty"`
	// Files are further files that hold something secret, such as a private key. None has
	// variables.
	Files []File `json:"files,omitempty"`
}

// Environment returns the variables of a node's system environment: the manifest's and the confidential ones. If both
// set a variable, in any case of letters, the confidential value wins.
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

// ConfidentialField is the key of a published Secret whose value is the output of PackConfidential.
const ConfidentialField = "confidential"

// PullKind says which pulls a mirror rule is for.
type PullKind string

// Kinds of pulls. A pull that names both, a tag and a digest, is one by digest.
const (
	PullByDigest PullKind = "digest"
	PullByTag    PullKind = "tag"
)

// MirrorRule says where images of one source come from, for one kind of pull.
type MirrorRule struct {
	// Source is host[:port][/namespace…[/repository]] or *.domain, in lower case where case does
	// not count.
	Source string   `json:"source"`
	Kind   PullKind `json:"kind"`
	// Mirrors are tried in this order. The part of an image's name that Source matches is replaced
	// by the mirror.
	Mirrors []string `json:"mirrors,omitempty"`
	// NeverContactSource leaves the source itself out. Otherwise it comes last.
	NeverContactSource bool `json:"neverContactSource,omitempty"`
}
