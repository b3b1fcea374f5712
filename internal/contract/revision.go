package contract

import "strings"

// RevisionDigits is how many hex digits of a manifest's digest end the name of its revision, after
// the operator's version and a hyphen.
const RevisionDigits = 10

// IsRevisionOf says whether a revision is the name of a manifest. It is not that of what is left of
// a manifest when this release does not know all that is in it.
func IsRevisionOf(revision string, m Manifest) bool { return names(revision, m.Digest()) }

// IsRevisionOfData says whether a revision is the name of the manifest in a ConfigMap's data:
// whatever else claims that name, in whatever object, is not what the operator published.
func IsRevisionOfData(revision string, data map[string]string) bool {
	return names(revision, DataDigest(data))
}

func names(revision, digest string) bool {
	return len(digest) > RevisionDigits && strings.HasSuffix(revision, "-"+digest[:RevisionDigits])
}
