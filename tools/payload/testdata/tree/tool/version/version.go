// Package version contains the version of a third-party program.
package version

// Version is set by the linker.
var Version = "not stamped"
