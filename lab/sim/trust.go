package sim

import (
	"bytes"
	"encoding/asn1"
	"fmt"
	"io/fs"
	"sync"
)

// trust is the root certificate store of the local machine. It compares certificates byte by byte. It doesn't parse
// them, except the outermost ASN.1 sequence.
type trust struct {
	mu           sync.Mutex
	certificates [][]byte
}

func newTrust(roots [][]byte) *trust {
	t := &trust{}
	for _, der := range roots {
		t.certificates = append(t.certificates, bytes.Clone(der))
	}
	return t
}

func (t *trust) list() [][]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([][]byte, len(t.certificates))
	for i, der := range t.certificates {
		all[i] = bytes.Clone(der)
	}
	return all
}

// add adds a certificate. Like the Windows API, it refuses data that isn't exactly one ASN.1 sequence.
func (t *trust) add(der []byte) error {
	var outer asn1.RawValue
	if rest, err := asn1.Unmarshal(der, &outer); err != nil || len(rest) > 0 || outer.Tag != asn1.TagSequence {
		return fmt.Errorf("reading the certificate: it is no ASN.1 sequence: %w", fs.ErrInvalid)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.index(der) < 0 {
		t.certificates = append(t.certificates, bytes.Clone(der))
	}
	return nil
}

func (t *trust) remove(der []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if i := t.index(der); i >= 0 {
		t.certificates = append(t.certificates[:i], t.certificates[i+1:]...)
	}
}

func (t *trust) index(der []byte) int {
	for i, have := range t.certificates {
		if bytes.Equal(have, der) {
			return i
		}
	}
	return -1
}
