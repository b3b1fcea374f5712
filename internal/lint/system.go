package lint

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
)

type system string

const (
	systemWindows system = "windows"
	systemLinux   system = "linux"
	// systemUnsaid means that a pod may run on Linux nodes and on Windows nodes.
	systemUnsaid system = ""
)

// systemOf returns the operating system that a pod selects. It looks at spec.os, the node selector, the required node
// affinity and the RuntimeClass, in this order. The first of them that selects an operating system counts.
func systemOf(spec *corev1.PodSpec, c Cluster) system {
	if spec.OS != nil && spec.OS.Name != "" {
		return system(spec.OS.Name)
	}
	for _, label := range []string{corev1.LabelOSStable, "beta.kubernetes.io/os"} {
		if value := spec.NodeSelector[label]; value != "" {
			return system(value)
		}
	}
	if _, set := spec.NodeSelector[corev1.LabelWindowsBuild]; set {
		return systemWindows
	}
	if found := systemOfAffinity(spec.Affinity); found != systemUnsaid {
		return found
	}
	if spec.RuntimeClassName != nil {
		if _, windows := c.RuntimeClasses[*spec.RuntimeClassName]; windows {
			return systemWindows
		}
	}
	return systemUnsaid
}

// systemOfAffinity returns the operating system that a required node affinity selects. If its alternatives don't all
// select the same operating system, it returns systemUnsaid.
func systemOfAffinity(affinity *corev1.Affinity) system {
	if affinity == nil || affinity.NodeAffinity == nil ||
		affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return systemUnsaid
	}
	found := systemUnsaid
	for _, term := range affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		of := systemUnsaid
		for _, e := range term.MatchExpressions {
			if e.Key == corev1.LabelOSStable && e.Operator == corev1.NodeSelectorOpIn && len(e.Values) == 1 {
				of = system(e.Values[0])
			}
		}
		if of == systemUnsaid || found != systemUnsaid && of != found {
			return systemUnsaid
		}
		found = of
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
