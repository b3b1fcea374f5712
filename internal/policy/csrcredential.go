package policy

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// IsFirstKubeletRequest reports whether a request was made with a bootstrap token. Every joining host
// is that user, so it vouches for no name: the instance's phase, the absence of a working Node and
// the id of the token do.
func IsFirstKubeletRequest(csr *certificatesv1.CertificateSigningRequest, bootstrapUser string) bool {
	return bootstrapUser != "" && csr.Spec.Username == bootstrapUser
}

// CredentialOf is the id of the token with which a request was made, or empty. The API server sets
// it.
func CredentialOf(csr *certificatesv1.CertificateSigningRequest) string {
	if ids := csr.Spec.Extra[contract.CredentialIDExtra]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// CredentialIDOf is the id that the API server will name when somebody shows this token of a
// service account, which came from the API server.
func CredentialIDOf(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("reading a token's id: it is no JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", errors.New("reading a token's id: its claims are not encoded as in a JWT")
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.ID == "" {
		return "", errors.New("reading a token's id: it has none")
	}
	return credentialPrefix + claims.ID, nil
}

// credentialPrefix is how the API server begins the id of a token of a service account.
const credentialPrefix = "JTI="

// credentialIsOfThisJoin demands that the request came with a bootstrap token that this very join
// was given: every host has such a token, so without this any host could become any other. It is
// good for one key, so that what reads the token on the host later gets nothing for it.
func credentialIsOfThisJoin(f csrFacts) *csrFault {
	id := CredentialOf(f.CSR)
	if f.CredentialOwner != "" && f.CredentialOwner != f.instance.Name {
		return fault(CSRCredentialForeign, "the bootstrap token was given to instance %s, not to %s", f.CredentialOwner,
			f.instance.Name)
	}
	if id == "" || !slices.Contains(f.instance.Credentials, id) {
		return notYet(CSRCredentialUnknown, "the bootstrap token is none that instance %s was given", f.instance.Name)
	}
	key := f.claim.Request.RawSubjectPublicKeyInfo
	if slices.ContainsFunc(f.CredentialKeys, func(used []byte) bool { return !bytes.Equal(used, key) }) {
		return fault(CSRKeyOfAnother, "the bootstrap token of instance %s was used for another key", f.instance.Name)
	}
	return nil
}
