package resolver

import (
	_ "crypto/sha512" // its digests can be checked, too
	"hash"

	godigest "github.com/opencontainers/go-digest"
)

// A digest is legal: the algorithm is one that can be checked, the hex is of its length and in lower
// case.
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

// isSum reports whether h, fed with everything, has this digest.
func (d digest) isSum(h hash.Hash) bool {
	return godigest.NewDigest(d.algorithm(), h) == godigest.Digest(d)
}

// of is the digest that content without a known one gets.
func of(content []byte) digest { return digest(godigest.FromBytes(content)) }
