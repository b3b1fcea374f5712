package policy

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
)

const (
	// MaxRequestBytes is the maximum size of a request that is parsed. The largest valid request has an RSA key of
	// maxRSABits (1 KiB for the key and 1 KiB for the signature) and maxSANs names of 253 bytes: 18 KiB as PEM. Without
	// this limit, a request could be a hundred times larger, up to the API server's limit for objects.
	MaxRequestBytes = 32 << 10
	// maxSANs is several times the number of names that a node with two networks and two DNS names has.
	maxSANs = 32

	requestBlock = "CERTIFICATE REQUEST"
)

// ParseCSR parses the PEM text of a certificate request from an untrusted source. The text must be exactly one block,
// surrounded only by white space, and at most MaxRequestBytes long. ParseCSR uses the same parser as the signer in
// kube-controller-manager, so that both see the same request. It doesn't verify the signature.
func ParseCSR(text []byte) (*x509.CertificateRequest, error) {
	if len(text) > MaxRequestBytes {
		return nil, fmt.Errorf("reading the request: %d bytes are more than %d", len(text), MaxRequestBytes)
	}
	text = bytes.TrimSpace(text)
	if !bytes.HasPrefix(text, []byte("-----BEGIN "+requestBlock+"-----")) {
		return nil, errors.New("reading the request: it does not begin with a " + requestBlock + " block")
	}
	block, rest := pem.Decode(text)
	switch {
	case block == nil || block.Type != requestBlock:
		return nil, errors.New("reading the request: it is not a " + requestBlock + " block")
	case len(block.Headers) > 0:
		return nil, errors.New("reading the request: the block has headers")
	case len(bytes.TrimSpace(rest)) > 0:
		return nil, errors.New("reading the request: something follows the block")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	if sans := len(sanTexts(request)); sans > maxSANs {
		return nil, fmt.Errorf("reading the request: %d names and addresses are more than %d", sans, maxSANs)
	}
	return request, nil
}
