// Package olm splits an installation into the objects that OLM installs and the objects that the operator applies
// itself. It also applies the second group.
//
// OLM installs bundles of the format registry+v1. Such a bundle can't contain admission policies or RuntimeClasses, and
// OLM moves every Role and RoleBinding into the operator's namespace. So Split sorts the objects of an installation.
// The bundle contains the objects that OLM installs unchanged. For each Role in a different namespace, it contains a
// ClusterRole. The operator applies the other objects before it does anything else: first the policies, then
// RuntimeClasses, then bindings. The bundle also gives the operator the rights to do so, limited to these objects by
// name: see tools/olm.
//
// olm imports only two of this project's packages: contract and config, which contains the manifests.
package olm
