package contract

import "strings"

// VersionDigits is how many hex digits of a manifest's digest end the name of its version, after the operator's version and a hyphen.
const VersionDigits = 10

// IsVersionOf says whether a version is the name of a manifest: whatever else claims that name, in whatever object, is not what the operator published.
func IsVersionOf(version string, m Manifest) bool {
	digest := m.Digest()
	return len(digest) > VersionDigits && strings.HasSuffix(version, "-"+digest[:VersionDigits])
}
