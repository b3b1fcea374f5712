package lint

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"

	"github.com/windows-nodes/wmco/internal/policy"
)

// Cluster holds the facts about a cluster that the rules need. The zero value means that nothing is known about the
// cluster. Then lint skips the rules that need these facts. Exception: it still checks for a toleration of the
// operator's own taint.
type Cluster struct {
	// Builds are the Windows builds of the cluster's nodes, such as 10.0.20348. They come from the label
	// node.kubernetes.io/windows-build.
	Builds []string
	// RuntimeClasses maps the name of each RuntimeClass for Windows nodes to the build in its node selector. The build
	// is empty if the node selector has none.
	RuntimeClasses map[string]string
	// Taints are the taints that all Windows nodes have in common.
	Taints []corev1.Taint
}

// windowsTaint returns the taint that the operator sets on every Windows node.
func windowsTaint() corev1.Taint {
	return corev1.Taint{Key: "os", Value: "Windows", Effect: corev1.TaintEffectNoSchedule}
}

// taints returns the taints of the Windows nodes. If no Windows nodes are known, it returns the operator's taint.
func (c Cluster) taints() []corev1.Taint {
	if len(c.Builds) == 0 && len(c.Taints) == 0 {
		return []corev1.Taint{windowsTaint()}
	}
	return slices.Clip(c.Taints)
}

const build2022 = 20348

// buildNumber returns the number of a build, such as 20348 for 10.0.20348.1234. It returns 0 if the text isn't a build.
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

// `runs` reports whether a node can run a process-isolated container of an image. Both parameters are build numbers.
// Before Windows Server 2022, the builds must be equal. A node of Windows Server 2022 or later also runs images of
// earlier builds back to 2022:
// https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/version-compatibility.
func runs(image, node int) bool { return image == node || build2022 <= image && image <= node }

// `fits` returns the builds of nodes that can't run an image. `images` contains the builds of the image's variants, and
// `nodes` contains the builds of the nodes.
func fits(images, nodes []int) (unfit []int) {
	for _, node := range nodes {
		if !slices.ContainsFunc(images, func(image int) bool { return runs(image, node) }) {
			unfit = append(unfit, node)
		}
	}
	return unfit
}

// `has` reports whether a node of the cluster has a build. The build may be given without its revision.
func (c Cluster) has(build string) bool {
	return slices.ContainsFunc(c.Builds, func(b string) bool {
		return b == build || buildNumber(b) != 0 && buildNumber(b) == buildNumber(build)
	})
}

// ClusterOf returns the facts about a cluster with these Windows nodes and RuntimeClasses.
func ClusterOf(nodes []corev1.Node, classes []nodev1.RuntimeClass) Cluster {
	c := Cluster{RuntimeClasses: map[string]string{}}
	for i := range nodes {
		if build := nodes[i].Labels[corev1.LabelWindowsBuild]; build != "" && !slices.Contains(c.Builds, build) {
			c.Builds = append(c.Builds, build)
		}
		taints := slices.DeleteFunc(slices.Clone(nodes[i].Spec.Taints), func(t corev1.Taint) bool {
			return !policy.Lasts(&t)
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
