package blueprint

import (
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// maxSkew is how many minor versions a kubelet may be older than its API server. It may never be
// newer. https://kubernetes.io/releases/version-skew-policy/#kubelet
const maxSkew = 3

// CheckSkew answers nil, or a problem with ReasonVersionUnsupported, for a kubelet of one version
// at an API server of another.
func CheckSkew(server, kubelet string) *contract.Problem {
	s, err := version.ParseGeneric(server)
	if err != nil {
		return contract.NewProblem(contract.ReasonVersionUnsupported,
			"the API server calls itself %q, which is no version", server)
	}
	k, err := version.ParseGeneric(kubelet)
	if err != nil {
		return contract.NewProblem(contract.ReasonVersionUnsupported,
			"the payload's kubelet is of version %q, which is no version", kubelet)
	}
	if s.Major() != k.Major() || k.Minor() > s.Minor() || k.Minor()+maxSkew < s.Minor() {
		return contract.NewProblem(contract.ReasonVersionUnsupported,
			"the API server is %s and the payload's kubelet %s: a kubelet is of the same minor version or up to %d "+
				"older", server, kubelet, maxSkew)
	}
	return nil
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

// versionName makes the desired version from the operator's version and a manifest's digest. It
// must be fit for the name of a ConfigMap.
func versionName(operator, digest string) string {
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

// Lengths in the name of a version. Ten hex digits tell 2^40 manifests apart.
const (
	maxOperatorVersion = 100
	versionDigits      = 10
)
