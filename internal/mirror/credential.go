package mirror

import "fmt"

// Credential is what a registry takes for a proof of identity: a user with a password, or one of the two tokens. It never shows itself in text.
type Credential struct {
	Username, Password string `json:"-"`
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
