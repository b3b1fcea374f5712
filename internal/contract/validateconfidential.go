package contract

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Validate checks every rule that the format can't express, given the manifest that it belongs to.
// It names all violations in one *Problem with ReasonManifestInvalid, and says nothing of the
// content.
func (c Confidential) Validate(m Manifest) error {
	var all []error
	complain := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if len(c.Salt) != SaltSize {
		complain("the salt has not %d bytes", SaltSize)
	}
	if c.EnvironmentDigest() != m.ConfidentialEnvironment {
		complain("the confidential environment is not the one that the manifest names")
	}
	all = append(all, variablesViolations(c.Environment)...)
	services := make(map[string]Service, len(m.Services))
	for _, s := range m.Services {
		services[s.Name] = s
	}
	taken := make([]File, 0, len(m.Files)+len(c.Files))
	taken = append(append(taken, m.Files...), c.Files...)
	all = append(all, filesViolations(taken, services)...)
	for _, f := range c.Files {
		if f.Digest != "" || len(f.NodeVariables)+len(f.HostVariables) > 0 {
			complain("confidential file %q: it has content, and no variables", f.Path)
		}
		// Nobody could see in public that such a service will be restarted.
		if slices.ContainsFunc(f.Services, func(name string) bool { return services[name].Disruptive }) {
			complain("confidential file %q: a service that pods feel can't need it", f.Path)
		}
	}
	for _, r := range c.Mirrors {
		if r.Source == "" || (r.Kind != PullByDigest && r.Kind != PullByTag) {
			complain("a mirror rule has no source or no kind")
		}
	}
	for host := range c.RegistryTrust {
		if host == "" || strings.ContainsAny(host, "/ \t\r\n") {
			complain("registry trust has something that is no registry")
		}
	}
	if err := errors.Join(all...); err != nil {
		return NewProblem(ReasonManifestInvalid, "%s", oneLine(err))
	}
	return nil
}
