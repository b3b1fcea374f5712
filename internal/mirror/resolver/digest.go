package resolver

import (
	_ "crypto/sha512" // its digests can be checked, too
	"hash"

	godigest "github.com/opencontainers/go-digest"
)

// digest is a valid digest: its algorithm is supported, and its hex has the right length and is in lower case.
type digest string

func parseDigest(text string) (digest, bool) {
	d, err := godigest.Parse(text)
	if err != nil {
		return "", false
	}
	return digest(d), true
}

func (d digest) algorithm() godigest.Algorithm { return godigest.Digest(d).Algorithm() }

func (d digest) hash() hash.Hash { return d.algorithm().Hash() }

// matches reports whether content has this digest.
func (d digest) matches(content []byte) bool {
	return d.algorithm().FromBytes(content) == godigest.Digest(d)
}

// isSum reports whether h, which hashed the whole content, has this digest.
func (d digest) isSum(h hash.Hash) bool {
	return godigest.NewDigest(d.algorithm(), h) == godigest.Digest(d)
}

// of returns the digest of content whose digest is unknown.
func of(content []byte) digest { return digest(godigest.FromBytes(content)) }
