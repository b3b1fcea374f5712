// Package olm answers the question "what of the install does OLM leave to the operator?"
//
// OLM installs bundles of the format registry+v1. It carries neither admission policies nor
// RuntimeClasses, and it moves every Role and RoleBinding into the namespace of the operator. So Split
// sorts the install: a bundle takes what OLM installs as it stands, with a ClusterRole for each Role in
// another namespace, and the operator applies the rest, with Apply, before it does anything else: first
// the policies, then RuntimeClasses, then bindings. The rights to do so, Rights, are part of the bundle,
// and name every object.
//
// It imports the manifests in config and no other package of ours but contract.
package olm
