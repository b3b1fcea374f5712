// Package version holds the version of this build. The operator, the plugin of kubectl, wmco-e2e and the lab use it;
// the linker sets it.
package version

// version is set with -ldflags "-X …/internal/version.version=1.2.3": the linker can set nothing
// but a variable.
var version = "0.0.0-dev"

// Version of this build, as semantic versioning writes it.
func Version() string { return version }
