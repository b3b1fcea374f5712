package blueprint

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/windows-nodes/wmco/internal/payload"
)

// featureGateFiles has a file for each minor version of Kubernetes whose kubelet may be shipped.
//
//go:embed featuregate/*.txt
var featureGateFiles embed.FS

// gateFlaws says which gates would keep a kubelet from starting: those that it does not know, and
// those that are locked to the other value.
func gateFlaws(wanted map[string]bool, kubelet payload.File) (words []string) {
	if len(wanted) == 0 {
		return nil
	}
	known, ok := featureGates(kubelet)
	if !ok {
		return []string{"featureGates can't be set, because the gates of kubelet " + shorten(kubelet.Version) +
			" are not known to this operator"}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		locked, exists := known[name]
		switch {
		case name == "RotateKubeletServerCertificate" || name == "NodeLogQuery":
			words = append(words, "featureGates."+name+" "+fieldOurs)
		case !exists:
			words = append(words, fmt.Sprintf("featureGates.%s is not known to kubelet %s", shorten(name),
				shorten(kubelet.Version)))
		case locked != "" && locked != fmt.Sprint(wanted[name]):
			words = append(words, fmt.Sprintf("featureGates.%s is locked to %s in kubelet %s", name, locked,
				shorten(kubelet.Version)))
		}
	}
	return words
}

// featureGates are the gates of a kubelet with the value that each is locked to, or nothing where
// there is a choice.
func featureGates(kubelet payload.File) (map[string]string, bool) {
	v, err := version.ParseGeneric(kubelet.Version)
	if err != nil {
		return nil, false
	}
	text, err := featureGateFiles.ReadFile(fmt.Sprintf("featuregate/%d.%d.txt", v.Major(), v.Minor()))
	if err != nil {
		return nil, false
	}
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, locked, _ := strings.Cut(strings.TrimSpace(line), "="); name != "" && !strings.HasPrefix(name, "#") {
			all[name] = locked
		}
	}
	return all, true
}
