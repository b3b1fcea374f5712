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

// featureGateFiles has a file for each minor version of kubelet whose feature gates users may set. featuregate/gates.go
// writes these files. The file for 1.37 comes from an upstream list that has no defaults and no dependencies.
//
//go:embed featuregate/*.txt
var featureGateFiles embed.FS

type featureGate struct {
	// locked is the gate's only permitted value: "true" or "false". If it is empty, both values are permitted.
	locked string
	// isOff reports that the gate is off by default.
	isOff bool
	// needs are the gates that must be on while this gate is on.
	needs []string
}

// gateFlaws describes the wanted gates that only the operator may set, and the gates that would keep kubelet from
// starting: unknown gates, gates that are locked to the opposite value, and gates that are off although another gate
// needs them.
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

// needFlaws describes each gate that is off, but is needed by a gate that is on.
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

// gatedFlaws describes the fields that are set although their gate is off. kubelet would not start with such a field.
func gatedFlaws(c kubeletconfigv1beta1.KubeletConfiguration, kubelet payload.File) []string {
	const gate = "KubeletCrashLoopBackOffMax"
	// Before 1.35 the gate was off by default. Users can't set the gates of such a kubelet.
	if c.CrashLoopBackOff.MaxContainerRestartPeriod == nil || !older(kubelet, 1, 35) &&
		!isOff(gate, c.FeatureGates, featureGates(kubelet)) {
		return nil
	}
	return []string{fmt.Sprintf("crashLoopBackOff.maxContainerRestartPeriod needs featureGates.%s, which is off in "+
		"kubelet %s", gate, shorten(kubelet.Version))}
}

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
