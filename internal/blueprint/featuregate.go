package blueprint

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/windows-nodes/wmco/internal/payload"
)

// featureGateFiles has a file for each minor version of Kubernetes whose kubelet may be shipped. gates.go, which
// lies there, writes them; that of 1.37 is from a list of upstream's, which knows neither defaults nor needs.
//
//go:embed featuregate/*.txt
var featureGateFiles embed.FS

// featureGate is one of a kubelet.
type featureGate struct {
	// locked is the only value that it may have, or empty where there is a choice.
	locked string
	// isOff says that it is off unless it is switched on.
	isOff bool
	// needs are the gates that must be on where this one is.
	needs []string
}

// gateFlaws says which gates would keep a kubelet from starting: those that it does not know, those that are locked
// to the other value, and those that are off though others need them.
func gateFlaws(wanted map[string]bool, kubelet payload.File) (words []string) {
	if len(wanted) == 0 {
		return nil
	}
	known := featureGates(kubelet)
	if known == nil {
		return []string{"featureGates can't be set, because the gates of kubelet " + shorten(kubelet.Version) +
			" are not known to this operator"}
	}
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		gate, exists := known[name]
		switch {
		case name == "RotateKubeletServerCertificate" || name == "NodeLogQuery":
			words = append(words, "featureGates."+name+" "+fieldOurs)
		case !exists:
			words = append(words, fmt.Sprintf("featureGates.%s is not known to kubelet %s", shorten(name),
				shorten(kubelet.Version)))
		case gate.locked != "" && gate.locked != fmt.Sprint(wanted[name]):
			words = append(words, fmt.Sprintf("featureGates.%s is locked to %s in kubelet %s", name, gate.locked,
				shorten(kubelet.Version)))
		}
	}
	if len(words) > 0 {
		return words
	}
	return needFlaws(wanted, known, kubelet)
}

// needFlaws names the gates that are off though gates that are on need them, each with those.
func needFlaws(wanted map[string]bool, known map[string]featureGate, kubelet payload.File) (words []string) {
	without := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		for _, need := range known[name].needs {
			if !isOff(name, wanted, known) && isOff(need, wanted, known) {
				without[need] = append(without[need], name)
			}
		}
	}
	for _, need := range slices.Sorted(maps.Keys(without)) {
		words = append(words, fmt.Sprintf("featureGates.%s is off, but kubelet %s has gates on that need it: %s", need,
			shorten(kubelet.Version), strings.Join(without[need], ", ")))
	}
	return words
}

func isOff(name string, wanted map[string]bool, known map[string]featureGate) bool {
	if value, isSet := wanted[name]; isSet {
		return !value
	}
	return known[name].isOff
}

// gatedFlaws names fields of a configuration whose gate is off, with which kubelet would not start.
func gatedFlaws(c kubeletconfigv1beta1.KubeletConfiguration, kubelet payload.File) []string {
	const gate = "KubeletCrashLoopBackOffMax"
	// Before 1.35 it was off by default, and gates of such a kubelet can't be set.
	if c.CrashLoopBackOff.MaxContainerRestartPeriod == nil || !older(kubelet, 1, 35) &&
		!isOff(gate, c.FeatureGates, featureGates(kubelet)) {
		return nil
	}
	return []string{fmt.Sprintf("crashLoopBackOff.maxContainerRestartPeriod needs featureGates.%s, which is off in "+
		"kubelet %s", gate, shorten(kubelet.Version))}
}

// featureGates are the gates of a kubelet, or nil where they are not known.
func featureGates(kubelet payload.File) map[string]featureGate {
	v, err := version.ParseGeneric(kubelet.Version)
	if err != nil {
		return nil
	}
	text, err := featureGateFiles.ReadFile(fmt.Sprintf("featuregate/%d.%d.txt", v.Major(), v.Minor()))
	if err != nil {
		return nil
	}
	all := map[string]featureGate{}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		name, locked, _ := strings.Cut(words[0], "=")
		gate, rest := featureGate{locked: locked, isOff: locked == "false"}, words[1:]
		if locked == "" && len(rest) > 0 {
			gate.isOff, rest = rest[0] == "false", rest[1:]
		}
		gate.needs = rest
		all[name] = gate
	}
	return all
}
