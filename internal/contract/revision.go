package contract

import "strings"

// RevisionDigits is the number of hex digits of the manifest's digest in the name of a revision. The name consists of
// the operator's version, a hyphen, and these digits.
const RevisionDigits = 10

// IsRevisionOf reports whether a revision is the name of a manifest. If ManifestFromConfigMap dropped fields of the
// manifest that this release doesn't know, IsRevisionOf returns false.
func IsRevisionOf(revision string, m Manifest) bool { return names(revision, m.Digest()) }

// IsRevisionOfData reports whether a revision is the name of the manifest in a ConfigMap's data. If it is not, the
// operator did not publish this data, whatever the object is called.
func IsRevisionOfData(revision string, data map[string]string) bool {
	return names(revision, DataDigest(data))
}

func names(revision, digest string) bool {
	return len(digest) > RevisionDigits && strings.HasSuffix(revision, "-"+digest[:RevisionDigits])
}
