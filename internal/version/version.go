// Package version holds the version of this build. The linker sets it. The operator, the kubectl plugin, wmco-e2e and
// the lab use this package.
package version

// version is set with -ldflags "-X …/internal/version.version=1.2.3". The linker can't set constants.
var version = "0.0.0-dev"

// Version returns the version of this build, in the format of semantic versioning.
func Version() string { return version }
