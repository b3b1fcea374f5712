package blueprint

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// Fitting leaves of a payload one version of each part that must fit the API server: of kubelet the
// newest that fits, and of the others the same version or else, too, the newest that fits. Where no
// kubelet fits, it answers a problem with ReasonVersionUnsupported, and the payload as it was.
func Fitting(server string, manifest payload.Manifest) (payload.Manifest, *contract.Problem) {
	kubelets := versionsOf(manifest, payload.NameKubelet)
	if len(kubelets) == 0 {
		return manifest, nil // that it is missing is another problem
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

// beside chooses the version of a part that runs beside a kubelet: the same one, else the newest that
// fits, else one whose version nobody told.
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

// newest chooses the newest version that fits an API server, or says of each why it does not.
func newest(server *version.Version, all []payload.File) (found *payload.File, why []string) {
	var best *version.Version
	for i, f := range all {
		v, err := version.ParseGeneric(f.Version)
		switch {
		case err != nil:
			why = append(why, fmt.Sprintf("%q, which is no version", f.Version))
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

// fittingMinors says which minor versions of kubelet fit an API server.
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

// older says whether a payload file is of an older version than major.minor. A version that can't
// be read is taken for a new one.
func older(file payload.File, major, minor uint) bool {
	v, err := version.ParseGeneric(file.Version)
	if err != nil {
		return false
	}
	return v.Major() < major || v.Major() == major && v.Minor() < minor
}

// gates are feature gates with the minor version of Kubernetes in which each became generally
// available, or 0 if it hasn't. A gate is named until then only: later versions drop it, and refuse
// to start when it is named.
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

// revisionName makes the desired revision from the operator's version and a manifest's digest. It
// must be fit for the name of a ConfigMap.
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

// Lengths in the name of a revision. Ten hex digits tell 2^40 manifests apart.
const (
	maxOperatorVersion = 100
	versionDigits      = 10
)
