// Command olm makes the bundle by which OLM installs the operator, and a catalog with that bundle, out
// of config/, which is the one truth: see docs/decisions. What OLM can't install, package olm of the
// operator names, and the operator applies.
package main
