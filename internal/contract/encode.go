package contract

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	kjson "sigs.k8s.io/json"
)

// SaltSize is the number of random bytes in a Confidential's salt.
const SaltSize = 16

// Limits of a Confidential. A Secret can contain 1 MiB, and its metadata needs little of this.
const (
	maxPacked   = 1<<20 - 4<<10
	maxUnpacked = 16 << 20
)

// Encode returns the Confidential as compressed JSON, for the Secret and for the state file. It compresses the JSON
// because bundles of CAs are large. The same content always gives the same JSON. digest is the SHA-256 of the JSON, in
// lower-case hex. If the result doesn't fit into a Secret, the error is a *Problem with ReasonDesiredStateTooLarge.
func (c Confidential) Encode() (packed []byte, digest string, err error) {
	data, err := json.Marshal(c)
	if err != nil {
		return nil, "", NewProblem(ReasonManifestInvalid, "the confidential part can't be written as JSON")
	}
	packed, err = Pack(data)
	return packed, Digest(data), err
}

// EnvironmentDigest returns the value of Manifest.ConfidentialEnvironment. Without an environment, it is empty. Only a
// reader who knows the salt can find the environment by trial.
func (c Confidential) EnvironmentDigest() string {
	if len(c.Environment) == 0 {
		return ""
	}
	mac := hmac.New(sha256.New, c.Salt)
	for _, name := range slices.Sorted(maps.Keys(c.Environment)) {
		fmt.Fprintf(mac, "%d %s %d %s\n", len(name), name, len(c.Environment[name]), c.Environment[name])
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// ParseConfidential reads the output of Encode and verifies it by the digest in the manifest. If the manifest has none,
// the result is empty. Errors are *Problem with ReasonManifestInvalid and never show the content.
func ParseConfidential(packed []byte, m Manifest) (c Confidential, err error) {
	if m.Confidential == "" {
		return c, nil
	}
	data, err := Unpack(packed)
	if err != nil {
		return c, err
	}
	if Digest(data) != m.Confidential {
		return c, NewProblem(ReasonManifestInvalid, "the manifest names another confidential part")
	}
	// Drop the parser's error, because it may quote the content.
	if err = kjson.UnmarshalCaseSensitivePreserveInts(data, &c); err != nil {
		return Confidential{}, NewProblem(ReasonManifestInvalid, "the confidential part is not understood")
	}
	return c, c.Validate()
}

// Pack compresses data for a Secret. If the result doesn't fit, Pack returns the same error as Encode.
func Pack(data []byte) ([]byte, error) {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // the level is valid
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("compressing the confidential part: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("compressing the confidential part: %w", err)
	}
	if out.Len() > maxPacked || len(data) > maxUnpacked {
		return nil, NewProblem(ReasonDesiredStateTooLarge, "certificates, mirror rules and pull secret take %d KiB "+
			"when compressed; a Secret holds %d", out.Len()>>10, maxPacked>>10)
	}
	return out.Bytes(), nil
}

// Unpack returns the JSON in the output of Encode. Its errors are *Problem with ReasonManifestInvalid.
func Unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, NewProblem(ReasonManifestInvalid, "the confidential part is not compressed as it should be")
	}
	data, err := io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	if err != nil || len(data) > maxUnpacked {
		return nil, NewProblem(ReasonManifestInvalid, "the confidential part is damaged or too large")
	}
	return data, nil
}

// Digest returns the lower-case hex SHA-256 of data.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}
