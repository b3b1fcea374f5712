package lint

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
)

// Cluster is what the rules ask about a cluster. The zero value is an unknown cluster: what depends
// on it is then not judged, except for tolerations of the operator's own taint.
type Cluster struct {
	// Builds are the Windows builds of its nodes, as the label node.kubernetes.io/windows-build has
	// them: 10.0.20348.
	Builds []string `json:"builds,omitempty"`
	// RuntimeClasses are those for Windows nodes by their names, each with the build that its node
	// selector names, or "".
	RuntimeClasses map[string]string `json:"runtimeClasses,omitempty"`
	// Taints are those that all Windows nodes have.
	Taints []corev1.Taint `json:"taints,omitempty"`
}

// windowsTaint is what the operator gives to every Windows node.
func windowsTaint() corev1.Taint {
	return corev1.Taint{Key: "os", Value: "Windows", Effect: corev1.TaintEffectNoSchedule}
}

// taints are the taints of Windows nodes. If no such node is known, it is the usual taint.
func (c Cluster) taints() []corev1.Taint {
	if len(c.Builds) == 0 && len(c.Taints) == 0 {
		return []corev1.Taint{windowsTaint()}
	}
	return slices.Clip(c.Taints)
}

// build2022 is the build of Windows Server 2022.
const build2022 = 20348

// buildNumber takes 20348 out of 10.0.20348.1234; 0 where there is none.
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

// runs reports whether an image for one build starts as a process-isolated container on a node of another build. Before
// Windows Server 2022 builds must be equal. A later node, up to Server 2025, also runs images of each build from 2022
// to its own: https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/version-compatibility.
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

// ClusterOf reads a cluster from its Windows nodes and its RuntimeClasses.
func ClusterOf(nodes []corev1.Node, classes []nodev1.RuntimeClass) Cluster {
	c := Cluster{RuntimeClasses: map[string]string{}}
	for i := range nodes {
		if build := nodes[i].Labels[corev1.LabelWindowsBuild]; build != "" && !slices.Contains(c.Builds, build) {
			c.Builds = append(c.Builds, build)
		}
		taints := slices.DeleteFunc(slices.Clone(nodes[i].Spec.Taints), func(t corev1.Taint) bool {
			// cordons and the like pass
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
