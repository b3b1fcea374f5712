package resolver

import (
	_ "crypto/sha512" // its digests can be checked, too
	"hash"

	godigest "github.com/opencontainers/go-digest"
)

// digest is legal: the algorithm is one that can be checked, the hex is of its length and in lower
// case.
type digest string

func parseDigest(text string) (digest, bool) {
	d, err := godigest.Parse(text)
	if err != nil {
		return "", false
	}
	return digest(d), true
}

func (d digest) hash() hash.Hash { return godigest.Digest(d).Algorithm().Hash() }

// isSum says whether h, fed with everything, has this digest.
func (d digest) isSum(h hash.Hash) bool {
	return godigest.NewDigest(godigest.Digest(d).Algorithm(), h) == godigest.Digest(d)
}

// of is the digest that content without a known one gets.
func of(content []byte) digest { return digest(godigest.FromBytes(content)) }
