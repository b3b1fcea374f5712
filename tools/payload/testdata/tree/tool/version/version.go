// Package version is where a foreign program keeps its version.
package version

// Version is stamped.
var Version = "not stamped"
