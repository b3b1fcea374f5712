package lint

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// flag is a field of a manifest, and whether it has a value that Windows doesn't support.
type flag struct {
	field string
	set   bool
}

func is(b *bool) bool { return b != nil && *b }

// podSecurity lists the fields that a pod's security context must not have with os.name windows, according to the
// API server's validation of pods.
func podSecurity(s *corev1.PodSecurityContext) []flag {
	if s == nil {
		return nil
	}
	return []flag{
		{"appArmorProfile", s.AppArmorProfile != nil}, {"seLinuxOptions", s.SELinuxOptions != nil},
		{"seLinuxChangePolicy", s.SELinuxChangePolicy != nil},
		{"seccompProfile", s.SeccompProfile != nil}, {"fsGroup", s.FSGroup != nil},
		{"fsGroupChangePolicy", s.FSGroupChangePolicy != nil}, {"sysctls", len(s.Sysctls) > 0},
		{"runAsUser", s.RunAsUser != nil}, {"runAsGroup", s.RunAsGroup != nil},
		{"supplementalGroups", s.SupplementalGroups != nil},
		{"supplementalGroupsPolicy", s.SupplementalGroupsPolicy != nil},
	}
}

// containerSecurity is the same for a container. Another rule checks Privileged.
func containerSecurity(s *corev1.SecurityContext) []flag {
	if s == nil {
		return nil
	}
	return []flag{
		{"appArmorProfile", s.AppArmorProfile != nil}, {"seLinuxOptions", s.SELinuxOptions != nil},
		{"seccompProfile", s.SeccompProfile != nil}, {"capabilities", s.Capabilities != nil},
		{"readOnlyRootFilesystem", s.ReadOnlyRootFilesystem != nil},
		{"allowPrivilegeEscalation", s.AllowPrivilegeEscalation != nil}, {"procMount", s.ProcMount != nil},
		{"runAsUser", s.RunAsUser != nil}, {"runAsGroup", s.RunAsGroup != nil},
	}
}

// has reports whether a node of the cluster has a build, with or without its revision.
func (c Cluster) has(build string) bool {
	return slices.ContainsFunc(c.Builds, func(b string) bool {
		return b == build || buildNumber(b) != 0 && buildNumber(b) == buildNumber(build)
	})
}

// allHostProcess reports whether every container is a HostProcess container.
func (p *pod) allHostProcess() bool {
	all := true
	p.containers(func(_ string, c *corev1.Container) { all = all && hostProcess(&p.Spec, c) })
	return all
}

func list(words []string) string { return strings.Join(words, ", ") }
