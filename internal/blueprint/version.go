package blueprint

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Fitting returns a payload with one version of each part that must fit the API server. For kubelet, this is the newest
// version that fits. For other parts, it is kubelet's version, or else the newest version that fits. If no kubelet
// fits, Fitting returns the unchanged payload, and a problem with ReasonVersionUnsupported.
func Fitting(server string, manifest payload.Manifest) (payload.Manifest, *contract.Problem) {
	kubelets := versionsOf(manifest, payload.NameKubelet)
	if len(kubelets) == 0 {
		return manifest, nil // another check reports the missing kubelet
	}
	s, err := version.ParseGeneric(server)
	if err != nil {
		return manifest, contract.NewProblem(contract.ReasonVersionUnsupported,
			"the API server calls itself %q, which is no version", server)
	}
	kubelet, why := newest(s, kubelets)
	if kubelet == nil {
		return manifest, contract.NewProblem(contract.ReasonVersionUnsupported,
			"the API server is %s, which kubelet %s fits; the payload has %s", server, fittingMinors(s),
			strings.Join(why, ", "))
	}
	chosen := map[string]*payload.File{payload.NameKubelet: kubelet}
	manifest.Missing = slices.Clone(manifest.Missing)
	for _, p := range payload.Parts() {
		all := versionsOf(manifest, p.Name)
		if !p.Skewed || p.Name == payload.NameKubelet || len(all) == 0 {
			continue
		}
		chosen[p.Name], why = beside(s, *kubelet, all)
		if chosen[p.Name] == nil {
			manifest.Missing = append(manifest.Missing, payload.Missing{Name: p.Name, Feature: p.Feature,
				Reason: "it has only " + strings.Join(why, ", ")})
		}
	}
	manifest.Files = slices.DeleteFunc(slices.Clone(manifest.Files), func(f payload.File) bool {
		only, isChosen := chosen[f.Name]
		return isChosen && (only == nil || *only != f)
	})
	return manifest, nil
}

// The function beside chooses the file of a part that runs together with kubelet: a file with kubelet's version, or
// else the file with the newest version that fits the API server, or else a file with an unknown version.
func beside(server *version.Version, kubelet payload.File, all []payload.File) (*payload.File, []string) {
	unread := -1
	for i, f := range all {
		if f.Version == kubelet.Version {
			return &all[i], nil
		}
		if _, err := version.ParseGeneric(f.Version); err != nil {
			unread = i
		}
	}
	found, why := newest(server, all)
	if found == nil && unread >= 0 {
		return &all[unread], nil
	}
	return found, why
}

// newest returns the file with the newest version that fits an API server, or nil, and why other versions don't fit.
func newest(server *version.Version, all []payload.File) (found *payload.File, why []string) {
	var best *version.Version
	for i, f := range all {
		v, err := version.ParseGeneric(f.Version)
		switch {
		case err != nil:
			why = append(why, fmt.Sprintf("%q, which is not a version", f.Version))
		case v.Major() != server.Major() || v.Minor() > server.Minor():
			why = append(why, f.Version+", which is newer than the API server or of another major version")
		case v.Minor()+payload.MaxSkew < server.Minor():
			why = append(why, fmt.Sprintf("%s, which is more than %d minor versions older", f.Version, payload.MaxSkew))
		case best == nil || best.LessThan(v):
			found, best = &all[i], v
		}
	}
	return found, why
}

func fittingMinors(server *version.Version) string {
	oldest := server.Minor() - min(server.Minor(), payload.MaxSkew)
	return fmt.Sprintf("%d.%d to %d.%d", server.Major(), oldest, server.Major(), server.Minor())
}

func versionsOf(manifest payload.Manifest, name string) (all []payload.File) {
	for _, f := range manifest.Files {
		if f.Name == name {
			all = append(all, f)
		}
	}
	return all
}

// older reports whether a payload file is older than major.minor. An unreadable version counts as new.
func older(file payload.File, major, minor uint) bool {
	v, err := version.ParseGeneric(file.Version)
	if err != nil {
		return false
	}
	return v.Major() < major || v.Major() == major && v.Minor() < minor
}

// gates maps each feature gate to the minor version of Kubernetes that made the gate generally available, or to 0 if
// none did. Set a gate only for older versions: later ones remove it, and then refuse to start with it.
type gates map[string]uint

func (g gates) of(file payload.File) map[string]bool {
	named := make(map[string]bool, len(g))
	for gate, since := range g {
		if since == 0 || older(file, 1, since) {
			named[gate] = true
		}
	}
	return named
}

// revisionName returns the name of a revision: the operator's version and the beginning of the manifest's digest. The
// result must be a valid part of a ConfigMap's name.
func revisionName(operator, digest string) string {
	legal := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' {
			return r
		}
		return '-'
	}, strings.ToLower(operator))
	for strings.Contains(legal, "..") || strings.Contains(legal, ".-") || strings.Contains(legal, "-.") {
		legal = strings.NewReplacer("..", ".", ".-", "-", "-.", "-").Replace(legal)
	}
	legal = strings.Trim(legal, ".-")
	if legal == "" {
		legal = "0.0.0"
	}
	return legal[:min(len(legal), maxOperatorVersion)] + "-" + digest[:versionDigits]
}

// Maximum lengths of the two parts of a revision's name. Ten hex digits distinguish 2^40 manifests.
const (
	maxOperatorVersion = 100
	versionDigits      = 10
)
