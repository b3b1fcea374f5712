package lint

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"

	"github.com/windows-nodes/wmco/internal/policy"
)

type system string

const (
	systemWindows system = "windows"
	// systemUnsaid means that a pod may run on Linux nodes and on Windows nodes.
	systemUnsaid system = ""
)

// systemOf returns the operating system that a pod selects, by itself or by its RuntimeClass.
func systemOf(spec *corev1.PodSpec, c Cluster) system {
	found := system(policy.PodSystem(spec))
	if found == systemUnsaid && spec.RuntimeClassName != nil {
		if _, windows := c.RuntimeClasses[*spec.RuntimeClassName]; windows {
			return systemWindows
		}
	}
	return found
}

// hostProcess reports whether a container is a HostProcess container, which has the host's rights.
func hostProcess(spec *corev1.PodSpec, c *corev1.Container) bool {
	own, ofPod := windowsOptions(spec, c)
	return *cmp.Or(own.HostProcess, ofPod.HostProcess, new(bool))
}

// windowsOptions returns the Windows options of a container and the Windows options of its pod. Options that aren't set
// are empty, not nil.
func windowsOptions(spec *corev1.PodSpec, c *corev1.Container) (own, ofPod *corev1.WindowsSecurityContextOptions) {
	none := &corev1.WindowsSecurityContextOptions{}
	return cmp.Or(cmp.Or(c.SecurityContext, &corev1.SecurityContext{}).WindowsOptions, none),
		cmp.Or(cmp.Or(spec.SecurityContext, &corev1.PodSecurityContext{}).WindowsOptions, none)
}

func (p *pod) allHostProcess() bool {
	all := true
	p.containers(func(_ string, c *corev1.Container) { all = all && hostProcess(&p.Spec, c) })
	return all
}

func tolerates(spec *corev1.PodSpec, taint corev1.Taint) bool {
	return schedulinghelper.TolerationsTolerateTaint(klog.Background(), spec.Tolerations, &taint, false)
}

func looksLikeLinux(text string) bool {
	return strings.HasPrefix(text, "/") && !strings.HasPrefix(text, "//") ||
		slices.Contains([]string{"sh", "bash", "ash", "cat", "ls", "sleep", "test", "true", "nc"}, text)
}
