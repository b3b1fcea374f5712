package lint

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/windows-nodes/wmco/internal/policy"
)

// Check checks pod templates against the rules. If images is not nil, it also checks whether the images of each
// template run on the cluster's nodes.
func Check(ctx context.Context, templates []Template, c Cluster, images Images) []Finding {
	var answers map[string]answer
	if images != nil {
		answers = ask(ctx, templates, images)
	}
	var all []Finding
	for i := range templates {
		p := newPod(&templates[i], c)
		p.answers = answers
		for _, rule := range rules() {
			if rule.when(&p) {
				rule.check(&p, func(severity Severity, field, message, fix string) {
					all = append(all, Finding{p.Object, severity, rule.name, p.path(field), message, fix})
				})
			}
		}
	}
	return order(all)
}

type pod struct {
	*Template
	cluster Cluster
	system  system
	// fields is the pod's spec in the form of a manifest.
	fields map[string]any
	// answers maps the names of images to the answers of their registries. It is nil without --images.
	answers map[string]answer
}

func newPod(t *Template, c Cluster) pod {
	fields, _ := runtime.DefaultUnstructuredConverter.ToUnstructured(&t.Spec) // can't fail for a PodSpec
	return pod{Template: t, cluster: c, system: systemOf(&t.Spec, c), fields: fields}
}

func (p *pod) path(field string) string {
	if field == "" {
		return p.Path
	}
	return p.Path + "." + field
}

// report is the function that a rule calls for each finding. field is a path below the pod's spec.
type report func(severity Severity, field, message, fix string)

// rule is one row of the table of rules. It applies to a pod if the function `when` returns true for the pod.
type rule struct {
	name  string
	when  func(*pod) bool
	check func(*pod, report)
}

func onWindows(p *pod) bool { return p.system == systemWindows }
func unsaid(p *pod) bool    { return p.system == systemUnsaid }

func rules() []rule {
	return append(fieldRules(), []rule{
		{"os-not-set", unsaid, checkUnsaid},
		{"os-name-missing", onWindows, checkName},
		{"toleration-missing", onWindows, checkToleration},
		{"build-missing", onWindows, checkBuild},
		{"run-as-non-root", onWindows, checkNonRoot},
		{"host-process", onWindows, checkHostProcess},
		{"user-name", onWindows, checkGMSA},
		{"command", onWindows, checkCommands},
		{"resources", onWindows, checkResources},
		{"image", func(p *pod) bool { return p.answers != nil }, checkImages},
	}...)
}

// containers calls a function for every container of the template, with the container's path.
func (p *pod) containers(each func(path string, c *corev1.Container)) {
	for i := range p.Spec.InitContainers {
		each(fmt.Sprintf("initContainers[%d]", i), &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		each(fmt.Sprintf("containers[%d]", i), &p.Spec.Containers[i])
	}
}

// checkUnsaid reports pods that select no operating system but tolerate the taints of Windows nodes. For example, a
// DaemonSet that tolerates every taint also creates pods on Windows nodes.
func checkUnsaid(p *pod, say report) {
	for _, taint := range append(p.cluster.taints(), windowsTaint()) {
		if !tolerates(&p.Spec, taint) {
			return
		}
	}
	say(Warning, "", "names no operating system and tolerates the taint of Windows nodes, so its pods can also run "+
		"on Windows nodes",
		"Set spec.os.name and the node selector kubernetes.io/os to linux or windows.")
}

func checkName(p *pod, say report) {
	if p.Spec.OS == nil {
		say(Warning, "os.name", "is not set, so the API server and admission check the pod by the rules of Linux",
			"Set os.name to windows.")
	}
	scheduled := p.Spec // the scheduler ignores os.name
	scheduled.OS = nil
	if p.Spec.OS != nil && p.Spec.RuntimeClassName == nil && policy.PodSystem(&scheduled) == "" {
		say(Error, "nodeSelector", "does not name kubernetes.io/os: the scheduler ignores os.name and may choose a "+
			"Linux node, whose kubelet refuses the pod", "Add the node selector kubernetes.io/os: windows.")
	}
}

func checkToleration(p *pod, say report) {
	if p.Spec.RuntimeClassName != nil {
		// The RuntimeClass may add tolerations.
		return
	}
	for _, taint := range p.cluster.taints() {
		if tolerates(&p.Spec, taint) {
			continue
		}
		message := fmt.Sprintf("lacks the taint %s of Windows nodes: no node takes the pod", taint.ToString())
		for _, t := range p.Spec.Tolerations {
			if t.Value != taint.Value && strings.EqualFold(t.Value, taint.Value) {
				message += fmt.Sprintf(". Upper and lower case count: %s is not %s", t.Value, taint.Value)
			}
		}
		say(Error, "tolerations", message, fmt.Sprintf("Add a toleration with key %s, value %s and effect %s.",
			taint.Key,
			taint.Value, taint.Effect))
	}
}

func checkBuild(p *pod, say report) {
	if len(p.cluster.Builds) == 0 {
		return
	}
	if wanted := p.Spec.NodeSelector[corev1.LabelWindowsBuild]; wanted != "" && !p.cluster.has(wanted) {
		say(Error, "nodeSelector", "selects Windows build "+wanted+", which no node of the cluster has",
			"Use one of these builds: "+strings.Join(p.cluster.Builds, ", ")+".")
	}
	if p.Spec.RuntimeClassName == nil {
		return
	}
	name := *p.Spec.RuntimeClassName
	wanted, known := p.cluster.RuntimeClasses[name]
	if known && wanted != "" && !p.cluster.has(wanted) {
		say(Error, "runtimeClassName", "names a RuntimeClass for Windows build "+wanted+
			", which no node of the cluster has",
			"Use a RuntimeClass for one of these builds: "+strings.Join(p.cluster.Builds, ", ")+".")
	}
}

// checkNonRoot reports containers that must not run as root but run as ContainerAdministrator. kubelet refuses to start
// them, because it treats ContainerAdministrator as root.
func checkNonRoot(p *pod, say report) {
	p.containers(func(path string, c *corev1.Container) {
		own, ofPod := windowsOptions(&p.Spec, c)
		user := *cmp.Or(own.RunAsUserName, ofPod.RunAsUserName, new(string))
		nonRoot := *cmp.Or(cmp.Or(c.SecurityContext, &corev1.SecurityContext{}).RunAsNonRoot,
			cmp.Or(p.Spec.SecurityContext, &corev1.PodSecurityContext{}).RunAsNonRoot, new(bool))
		if nonRoot && strings.EqualFold(user, "ContainerAdministrator") {
			say(Error, path, "never starts: runAsNonRoot is true, and its user is ContainerAdministrator",
				"Set windowsOptions.runAsUserName to ContainerUser, or remove runAsNonRoot.")
		}
	})
}

func checkHostProcess(p *pod, say report) {
	any, all := false, true
	p.containers(func(_ string, c *corev1.Container) {
		any, all = any || hostProcess(&p.Spec, c), all && hostProcess(&p.Spec, c)
	})
	switch {
	case any && !all:
		say(Error, "containers", "some containers are HostProcess containers and some are not, which the API "+
			"server refuses",
			"Set windowsOptions.hostProcess in the pod's securityContext, for all of them.")
	case any && !p.Spec.HostNetwork:
		say(Error, "hostNetwork", "must be true in a pod of HostProcess containers", "Set hostNetwork: true.")
	}
}

// checkGMSA reports containers and pods that have the name of a credential spec but not its content.
func checkGMSA(p *pod, say report) {
	look := func(at string, value any) {
		options, _ := value.(map[string]any)
		if name, set := options["gmsaCredentialSpecName"]; set && options["gmsaCredentialSpec"] == nil {
			say(Warning, at+".gmsaCredentialSpecName",
				"needs a webhook that fills it in; without the webhook, the API server refuses the pod",
				fmt.Sprintf("Install the gMSA webhook, and create the GMSACredentialSpec %s.", name))
		}
	}
	visit(p.fields, "securityContext.windowsOptions", look)
	visit(p.fields, containers+".securityContext.windowsOptions", look)
}

func checkCommands(p *pod, say report) {
	for _, path := range []string{".command", ".livenessProbe|readinessProbe|startupProbe.exec.command",
		".lifecycle.preStop|postStart.exec.command"} {
		visit(p.fields, containers+path, func(at string, value any) {
			if words, _ := value.([]any); len(words) > 0 && looksLikeLinux(fmt.Sprint(words[0])) {
				say(Error, at, fmt.Sprintf("%s is a Linux program, which a Windows image does not have", words[0]),
					"Use cmd.exe, powershell.exe or a program of the image.")
			}
		})
	}
}

func checkResources(p *pod, say report) {
	p.containers(func(path string, c *corev1.Container) {
		for name := range c.Resources.Limits {
			if strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) {
				say(Error, path+".resources.limits."+string(name), "Windows nodes have no huge pages", "Remove it.")
			}
		}
		if _, set := c.Resources.Requests[corev1.ResourceMemory]; !set && c.Resources.Limits.Memory().IsZero() {
			say(Warning, path+".resources.requests.memory", "is not set: Windows never ends a process for lack of "+
				"memory, so pods without requests let a node run out of it",
				"Set requests.memory to what the container needs.")
		}
	})
}
