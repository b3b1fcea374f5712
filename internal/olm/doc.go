// Package olm splits an installation into the parts that OLM installs and the parts that the operator applies. It
// also applies the operator's parts.
//
// OLM installs bundles of the format registry+v1. They carry no admission policies or RuntimeClasses, and OLM
// moves every Role and RoleBinding into the operator's namespace. So Split sorts the objects of an installation. A
// bundle contains the objects that OLM installs unchanged, with a ClusterRole for each Role in another namespace. The
// operator applies the rest before it does anything else: first the policies, then RuntimeClasses, then bindings. Its
// rights to do so are part of the bundle and name every object: see tools/olm.
//
// It imports the manifests in config, and of our packages only contract.
package olm
