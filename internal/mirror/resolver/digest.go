package resolver

import (
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"hash"
	"net/netip"
	"strings"
)

// digest is algorithm:hex, and legal: the algorithm is one that can be checked, the hex is of its
// length and in lower case.
type digest string

func parseDigest(text string) (digest, bool) {
	algorithm, sum, ok := strings.Cut(text, ":")
	if !ok || len(sum) != hexLength(algorithm) {
		return "", false
	}
	for i := range len(sum) {
		if c := sum[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return "", false
		}
	}
	return digest(text), true
}

// hexLength is -1 for algorithms that images don't use.
func hexLength(algorithm string) int {
	switch algorithm {
	case "sha256":
		return 2 * sha256.Size
	case "sha384":
		return 2 * sha512.Size384
	case "sha512":
		return 2 * sha512.Size
	}
	return -1
}

func (d digest) hash() hash.Hash {
	switch algorithm, _, _ := strings.Cut(string(d), ":"); algorithm {
	case "sha384":
		return sha512.New384()
	case "sha512":
		return sha512.New()
	}
	return sha256.New()
}

// isSum says whether h, fed with everything, has this digest.
func (d digest) isSum(h hash.Hash) bool {
	_, want, _ := strings.Cut(string(d), ":")
	return want == hex.EncodeToString(h.Sum(nil))
}

// of is the digest that content without a known one gets.
func of(content []byte) digest {
	sum := sha256.Sum256(content)
	return digest("sha256:" + hex.EncodeToString(sum[:]))
}

func isIPv6(text string) bool {
	address, err := netip.ParseAddr(text)
	return err == nil && address.Is6() && address.Zone() == ""
}
