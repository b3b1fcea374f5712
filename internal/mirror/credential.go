package mirror

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
)

// Credential authenticates at a registry: with a user name and password, or with an identity or registry token.
// Formatted as text, a Credential shows no secret.
type Credential struct {
	Username string `json:"-"`
	Password string `json:"-"`
	// IdentityToken is exchanged for an access token at the registry's token server.
	IdentityToken string `json:"-"`
	// RegistryToken is sent unchanged to the registry, as a bearer token.
	RegistryToken string `json:"-"`
}

// `hidden` replaces a secret in every text.
const hidden = "[hidden]"

// Format hides the secret from fmt, for every formatting verb.
func (Credential) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(hidden)) }

// String hides the secret from loggers that call String.
func (Credential) String() string { return hidden }

// parseCredential parses an entry of the pull secret. As in docker and kubelet, the field auth (user:password in
// base64) takes precedence over the fields username and password. An entry without any of these fields is an empty
// credential. Errors contain no part of the entry.
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

// decodeAuth decodes user:password from base64, with or without padding. It removes NUL bytes, which docker may append.
func decodeAuth(auth string) (user, password string, ok bool) {
	text, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(strings.TrimSpace(auth), "="))
	if err != nil {
		return "", "", false
	}
	user, password, ok = strings.Cut(string(text), ":")
	return user, strings.TrimRight(password, "\x00"), ok
}
