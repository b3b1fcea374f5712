package mirror

import (
	"fmt"

	"github.com/windows-nodes/wmco/internal/contract"
)

// PullSecret holds the cluster's credentials for registries. The zero value has none. It never changes once made, and never shows itself in text.
type PullSecret struct {
	credentials map[string]Credential // by host[:port][/path]
}

// Format keeps fmt, whatever the verb, from what is secret.
func (PullSecret) Format(state fmt.State, _ rune) { _, _ = state.Write([]byte(hidden)) }

// String tells nothing.
func (PullSecret) String() string { return hidden }

// MarshalText tells nothing, so that logs and JSON do not either.
func (PullSecret) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// ParsePullSecret reads a .dockerconfigjson.
func ParsePullSecret(_ []byte) (PullSecret, error) {
	return PullSecret{}, contract.NewProblem(contract.ReasonPullSecretInvalid, "not yet")
}

// For gives the credential for a repository: that of the most specific key that the repository is below. The host is as in image names: docker.io.
func (s PullSecret) For(_, _ string) (Credential, bool) { return Credential{}, false }
