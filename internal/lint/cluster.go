package lint

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

// Cluster holds the facts about a cluster for the rules. The zero value is an unknown cluster. Then rules that need
// these facts don't apply, except the rule for tolerations of the operator's own taint.
type Cluster struct {
	// Builds are the Windows builds of its nodes, as in the label node.kubernetes.io/windows-build: 10.0.20348.
	Builds []string
	// RuntimeClasses maps the RuntimeClasses for Windows nodes to the build in their node selector, or "".
	RuntimeClasses map[string]string
	// Taints are the common taints of all Windows nodes.
	Taints []corev1.Taint
}

// windowsTaint returns the operator's taint of every Windows node.
func windowsTaint() corev1.Taint {
	return corev1.Taint{Key: "os", Value: "Windows", Effect: corev1.TaintEffectNoSchedule}
}

// taints returns the taints of Windows nodes. If no such node is known, it returns the usual taint.
func (c Cluster) taints() []corev1.Taint {
	if len(c.Builds) == 0 && len(c.Taints) == 0 {
		return []corev1.Taint{windowsTaint()}
	}
	return slices.Clip(c.Taints)
}

// build2022 is the build of Windows Server 2022.
const build2022 = 20348

// buildNumber returns 20348 for 10.0.20348.1234. It returns 0 if there is no build number.
func buildNumber(version string) int {
	parts := strings.Split(version, ".")
	if len(parts) < 3 || parts[0] != "10" {
		return 0
	}
	n, err := strconv.Atoi(parts[2])
	if err != nil {
		return 0
	}
	return n
}

// runs reports whether an image for one build starts as a process-isolated container on a node of another build.
// Before Windows Server 2022, builds must be equal. A later node, up to Server 2025, also runs images of each build
// from 2022 to its own:
// https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/version-compatibility.
func runs(image, node int) bool { return image == node || build2022 <= image && image <= node }

// fits returns the builds of the nodes that can't run any variant of an image.
func fits(images, nodes []int) (unfit []int) {
	for _, node := range nodes {
		if !slices.ContainsFunc(images, func(image int) bool { return runs(image, node) }) {
			unfit = append(unfit, node)
		}
	}
	return unfit
}

// has reports whether a node of the cluster has a build, with or without its revision.
func (c Cluster) has(build string) bool {
	return slices.ContainsFunc(c.Builds, func(b string) bool {
		return b == build || buildNumber(b) != 0 && buildNumber(b) == buildNumber(build)
	})
}

// ClusterOf reads a cluster from its Windows nodes and its RuntimeClasses.
func ClusterOf(nodes []corev1.Node, classes []nodev1.RuntimeClass) Cluster {
	c := Cluster{RuntimeClasses: map[string]string{}}
	for i := range nodes {
		if build := nodes[i].Labels[corev1.LabelWindowsBuild]; build != "" && !slices.Contains(c.Builds, build) {
			c.Builds = append(c.Builds, build)
		}
		taints := slices.DeleteFunc(slices.Clone(nodes[i].Spec.Taints), func(t corev1.Taint) bool {
			// cordons and similar taints are temporary
			return t.Effect == corev1.TaintEffectPreferNoSchedule || strings.HasPrefix(t.Key, "node.kubernetes.io/")
		})
		if i == 0 {
			c.Taints = taints
			continue
		}
		c.Taints = slices.DeleteFunc(c.Taints, func(t corev1.Taint) bool {
			return !slices.ContainsFunc(taints, func(other corev1.Taint) bool { return other.MatchTaint(&t) })
		})
	}
	slices.Sort(c.Builds)
	for _, class := range classes {
		selects := map[string]string{}
		if class.Scheduling != nil {
			selects = class.Scheduling.NodeSelector
		}
		if build, windows := selects[corev1.LabelWindowsBuild], selects[corev1.LabelOSStable]; build != "" ||
			windows == string(corev1.Windows) {
			c.RuntimeClasses[class.Name] = build
		}
	}
	return c
}
