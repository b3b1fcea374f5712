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

// IsFirstKubeletRequest reports whether a request was made by the bootstrap user. All joining hosts use this user, so
// other rules check the instance's phase, the token's id and the Node.
func IsFirstKubeletRequest(csr *certificatesv1.CertificateSigningRequest, bootstrapUser string) bool {
	return bootstrapUser != "" && csr.Spec.Username == bootstrapUser
}

// CredentialOf returns the id of the token that authenticated the sender, or "". The API server sets this id.
func CredentialOf(csr *certificatesv1.CertificateSigningRequest) string {
	if ids := csr.Spec.Extra[contract.CredentialIDExtra]; len(ids) == 1 {
		return ids[0]
	}
	return ""
}

// CredentialIDOf returns the id that the API server will write into requests that are made with this service account
// token. The token must come from the API server, because its signature isn't verified.
func CredentialIDOf(token string) (string, error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return "", errors.New("reading a token's id: it is not a JWT")
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", errors.New("reading a token's id: its claims are not encoded as in a JWT")
	}
	var claims struct {
		ID string `json:"jti"`
	}
	if json.Unmarshal(payload, &claims) != nil || claims.ID == "" {
		return "", errors.New("reading a token's id: it has no id")
	}
	return credentialPrefix + claims.ID, nil
}

// credentialPrefix is the API server's prefix for the id of a service account token.
const credentialPrefix = "JTI="

// credentialIsOfThisJoin requires a bootstrap token that was created for this join of this host. Every host gets such a
// token, so without this rule, any host could get the certificate of any other host. A token is valid for one key only,
// so a process that reads the token on the host later can't use it.
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
