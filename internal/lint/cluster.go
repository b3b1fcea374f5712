package lint

import (
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Cluster is what the rules ask about a cluster. The zero value is an unknown cluster: what depends
// on it is then not judged.
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

// build2022 and build2025 are of Windows Server 2022 and 2025.
const (
	build2022 = 20348
	build2025 = 26100
)

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

// runs says whether an image made for one build starts as a process-isolated container on a node of
// another. Builds must be equal; Windows Server 2025 takes images of 2022 as well:
// https://learn.microsoft.com/virtualization/windowscontainers/deploy-containers/version-compatibility.
func runs(image, node int) bool {
	return image == node || image == build2022 && node >= build2025
}

// fits says whether an image that offers some builds starts on each build of a set.
func fits(images, nodes []int) (unfit []int) {
	for _, node := range nodes {
		if !slices.ContainsFunc(images, func(image int) bool { return runs(image, node) }) {
			unfit = append(unfit, node)
		}
	}
	return unfit
}
