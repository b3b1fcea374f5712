//go:build ignore

// Command gates prints the feature gates of one minor version of kubelet, with their defaults and the gates that they
// need. Run it in the module that requires this version of Kubernetes, because it imports kubelet's packages:
//
//	gates=$PWD/internal/blueprint/featuregate
//	go -C payload/kubernetes/1.36 run $gates/gates.go >$gates/1.36.txt
package main

import (
	"fmt"
	"log"
	"runtime/debug"
	"slices"
	"strings"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	metricsfeatures "k8s.io/component-base/metrics/features"
	_ "k8s.io/kubernetes/pkg/features"
)

func main() {
	info, ok := debug.ReadBuildInfo()
	i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == "k8s.io/kubernetes" })
	if !ok || i < 0 {
		log.Fatal("this program does not know its modules")
	}
	gate := utilfeature.DefaultMutableFeatureGate
	for _, add := range []func() error{ // kubelet itself adds these gates
		func() error { return logsapi.AddFeatureGates(gate) },
		func() error { return metricsfeatures.AddFeatureGates(gate) },
	} {
		if err := add(); err != nil {
			log.Fatal(err)
		}
	}
	version := info.Deps[i].Version
	fmt.Printf(`# The feature gates of kubelet %s, written by gates.go from k8s.io/kubernetes %s.
# Each line has a gate and its default, or = and the value that the gate is locked to: with another value, kubelet does
# not start. Other gates after that must also be on while this gate is on. Otherwise kubelet does not start.
`, version[1:strings.LastIndex(version, ".")], version)
	var lines []string
	for name, spec := range gate.GetAll() {
		sign := " "
		if spec.LockToDefault {
			sign = "="
		}
		line := fmt.Sprintf("%s%s%t", name, sign, spec.Default)
		for _, need := range gate.Dependencies()[name] {
			line += " " + string(need)
		}
		// Omit AllAlpha and AllBeta, which switch whole groups. The operator then refuses them as unknown gates.
		if name != "AllAlpha" && name != "AllBeta" {
			lines = append(lines, line+"\n")
		}
	}
	slices.Sort(lines)
	fmt.Print(strings.Join(lines, ""))
}
