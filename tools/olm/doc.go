// Command olm creates the bundle that OLM installs the operator from, and a catalog with that bundle. Its only
// source is config/: see docs/decisions. OLM can't install some objects. The operator's package olm names these
// objects, and the operator applies them.
package main
