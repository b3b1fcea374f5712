package mirror

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Credential is what a registry takes for a proof of identity: a user with a password, or one of
// the two tokens. It never shows itself in text.
type Credential struct {
	Username string `json:"-"`
	Password string `json:"-"`
	// IdentityToken is exchanged for an access token at the registry's token server.
	IdentityToken string `json:"-"`
	// RegistryToken is sent to the registry as it is, as a bearer token.
	RegistryToken string `json:"-"`
}

// hidden stands in every text for what must not be there.
const hidden = "[hidden]"

// Format keeps fmt, whatever the verb, from what is secret.
func (Credential) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(hidden)) }

// String tells nothing.
func (Credential) String() string { return hidden }

// MarshalText tells nothing, so that logs and JSON do not either.
func (Credential) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// parseCredential reads an entry of the pull secret. auth, which is user:password in base64, wins
// over the two fields, as in docker and kubelet. An entry without any of them is a credential that
// is empty. Errors repeat nothing of the content.
func parseCredential(entry json.RawMessage) (Credential, error) {
	var fields struct {
		Auth          string `json:"auth"`
		Username      string `json:"username"`
		Password      string `json:"password"`
		IdentityToken string `json:"identitytoken"`
		RegistryToken string `json:"registrytoken"`
	}
	if json.Unmarshal(entry, &fields) != nil {
		return Credential{}, errors.New("the entry is not an object with texts")
	}
	credential := Credential{fields.Username, fields.Password, fields.IdentityToken, fields.RegistryToken}
	if fields.Auth != "" {
		user, password, ok := decodeAuth(fields.Auth)
		if !ok {
			return Credential{}, errors.New("auth is not user:password in base64")
		}
		credential.Username, credential.Password = user, password
	}
	if strings.Contains(credential.Username, ":") {
		return Credential{}, errors.New("a user name has no colon")
	}
	for _, text := range []string{credential.Username, credential.Password, credential.IdentityToken,
		credential.RegistryToken} {
		if strings.ContainsFunc(text, unicode.IsControl) {
			return Credential{}, errors.New("control characters can't be sent")
		}
	}
	return credential, nil
}

// decodeAuth takes base64 with padding and without. docker has NUL behind the password sometimes.
func decodeAuth(auth string) (user, password string, ok bool) {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(text), ":")
	return user, strings.TrimRight(password, "\x00"), ok
}
