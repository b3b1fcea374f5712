package lint

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// All holds templates against the rules, and their images against what the registries have. Images
// may be nil: then no registry is asked.
func All(ctx context.Context, templates []Template, c Cluster, images Images) []Finding {
	findings := Check(templates, c)
	if images != nil {
		findings = append(findings, CheckImages(ctx, templates, c, images)...)
	}
	return order(findings)
}

// Check holds templates against the rules.
func Check(templates []Template, c Cluster) []Finding {
	var all []Finding
	for i := range templates {
		p := pod{Template: &templates[i], cluster: c, system: systemOf(&templates[i].Spec, c)}
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

// pod is a template with the known facts about its nodes.
type pod struct {
	*Template
	cluster Cluster
	system  system
}

func (p *pod) path(field string) string {
	if field == "" {
		return p.Path
	}
	return p.Path + "." + field
}

// report takes one finding; the field is a path below the pod's spec.
type report func(severity Severity, field, message, fix string)

// rule is one row of the table.
type rule struct {
	name  string
	when  func(*pod) bool
	check func(*pod, report)
}

func onWindows(p *pod) bool { return p.system == systemWindows }
func unsaid(p *pod) bool    { return p.system == systemUnsaid }

// rules is the table, in the order of fixing: first the placement of the pod, then fields that the API server refuses,
// then fields that Windows ignores.
func rules() []rule {
	return []rule{
		{"os-not-set", unsaid, checkUnsaid},
		{"os-name-missing", onWindows, checkName},
		{"toleration-missing", onWindows, checkToleration},
		{"build-missing", onWindows, checkBuild},
		{"host-namespace", onWindows, checkHost},
		{"linux-security", onWindows, checkSecurity},
		{"run-as-non-root", onWindows, checkNonRoot},
		{"privileged", onWindows, checkPrivileged},
		{"host-process", onWindows, checkHostProcess},
		{"user-name", onWindows, checkUser},
		{"volume", onWindows, checkVolumes},
		{"mount", onWindows, checkMounts},
		{"command", onWindows, checkCommands},
		{"resources", onWindows, checkResources},
		{"dns", onWindows, checkDNS},
	}
}

// containers calls for each container with its path. Ephemeral containers are none of a template.
func (p *pod) containers(each func(path string, c *corev1.Container)) {
	for i := range p.Spec.InitContainers {
		each(fmt.Sprintf("initContainers[%d]", i), &p.Spec.InitContainers[i])
	}
	for i := range p.Spec.Containers {
		each(fmt.Sprintf("containers[%d]", i), &p.Spec.Containers[i])
	}
}

// checkUnsaid finds pods that may land on a Windows node and name no system: a DaemonSet that
// tolerates everything reaches every node.
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
	if p.Spec.OS != nil && p.Spec.NodeSelector[corev1.LabelOSStable] == "" && p.Spec.RuntimeClassName == nil &&
		systemOfAffinity(p.Spec.Affinity) == systemUnsaid {
		say(Error, "nodeSelector", "does not name kubernetes.io/os: the scheduler ignores os.name and may choose a "+
			"Linux node, whose kubelet refuses the pod", "Add the node selector kubernetes.io/os: windows.")
	}
}

func checkToleration(p *pod, say report) {
	if p.Spec.RuntimeClassName != nil {
		// A RuntimeClass adds its own tolerations.
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

// checkBuild finds pods that ask for a build which no node has.
func checkBuild(p *pod, say report) {
	if len(p.cluster.Builds) == 0 {
		return
	}
	if wanted := p.Spec.NodeSelector[corev1.LabelWindowsBuild]; wanted != "" && !p.cluster.has(wanted) {
		say(Error, "nodeSelector", "selects Windows build "+wanted+", which no node of the cluster has",
			"Use one of these builds: "+list(p.cluster.Builds)+".")
	}
	if p.Spec.RuntimeClassName == nil {
		return
	}
	name := *p.Spec.RuntimeClassName
	wanted, known := p.cluster.RuntimeClasses[name]
	if known && wanted != "" && !p.cluster.has(wanted) {
		say(Error, "runtimeClassName", "names a RuntimeClass for Windows build "+wanted+
			", which no node of the cluster has",
			"Use a RuntimeClass for one of these builds: "+list(p.cluster.Builds)+".")
	}
}

func checkHost(p *pod, say report) {
	fields := []flag{
		{"hostPID", p.Spec.HostPID}, {"hostIPC", p.Spec.HostIPC},
		{"shareProcessNamespace", is(p.Spec.ShareProcessNamespace)},
		{"hostUsers", p.Spec.HostUsers != nil},
		{"hostNetwork", p.Spec.HostNetwork && !p.allHostProcess()},
	}
	for _, f := range fields {
		if f.set {
			say(Error, f.field,
				"Windows has no such namespace to share; the API server refuses it with os.name windows",
				"Remove it. A HostProcess container sees the host's network and processes.")
		}
	}
}

func checkSecurity(p *pod, say report) {
	severity, message := Error, "is for Linux only; the API server refuses it with os.name windows"
	if p.Spec.OS == nil { // then it is ignored
		severity, message = Warning, "is for Linux only; the API server refuses it when os.name is set to windows"
	}
	const fix = "Remove it. Windows has securityContext.windowsOptions instead."
	for _, f := range podSecurity(p.Spec.SecurityContext) {
		if f.set {
			say(severity, "securityContext."+f.field, message, fix)
		}
	}
	p.containers(func(path string, c *corev1.Container) {
		for _, f := range containerSecurity(c.SecurityContext) {
			if f.set {
				say(severity, path+".securityContext."+f.field, message, fix)
			}
		}
	})
}

// checkNonRoot finds containers that kubelet refuses to start: ContainerAdministrator is what it takes for root.
func checkNonRoot(p *pod, say report) {
	userOf := func(o *corev1.WindowsSecurityContextOptions) *string {
		return cmp.Or(o, &corev1.WindowsSecurityContextOptions{}).RunAsUserName
	}
	ofPod := cmp.Or(p.Spec.SecurityContext, &corev1.PodSecurityContext{})
	p.containers(func(path string, c *corev1.Container) {
		own := cmp.Or(c.SecurityContext, &corev1.SecurityContext{})
		user := cmp.Or(userOf(own.WindowsOptions), userOf(ofPod.WindowsOptions), new(string))
		if is(cmp.Or(own.RunAsNonRoot, ofPod.RunAsNonRoot)) && strings.EqualFold(*user, "ContainerAdministrator") {
			say(Error, path, "never starts: runAsNonRoot is true, and its user is ContainerAdministrator",
				"Set windowsOptions.runAsUserName to ContainerUser, or remove runAsNonRoot.")
		}
	})
}

func checkPrivileged(p *pod, say report) {
	p.containers(func(path string, c *corev1.Container) {
		if c.SecurityContext != nil && is(c.SecurityContext.Privileged) {
			say(Error, path+".securityContext.privileged", "Windows has no privileged containers",
				"Use a HostProcess container: securityContext.windowsOptions.hostProcess.")
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

// longestUser is the longest user name that Windows takes: 20 characters and a domain before it.
const longestUser = 256 + 1 + 20

func checkUser(p *pod, say report) {
	look := func(path string, o *corev1.WindowsSecurityContextOptions) {
		if o == nil {
			return
		}
		if o.RunAsUserName != nil && len(*o.RunAsUserName) > longestUser {
			say(Error, path+".runAsUserName", "is longer than Windows allows",
				"Use DOMAIN\\user with a user of up to 20 characters.")
		}
		if o.GMSACredentialSpec == nil && o.GMSACredentialSpecName != nil {
			say(Warning, path+".gmsaCredentialSpecName",
				"needs a webhook that fills it in; without the webhook, the API server refuses the pod",
				"Install the gMSA webhook, and create the GMSACredentialSpec "+*o.GMSACredentialSpecName+".")
		}
	}
	if p.Spec.SecurityContext != nil {
		look("securityContext.windowsOptions", p.Spec.SecurityContext.WindowsOptions)
	}
	p.containers(func(path string, c *corev1.Container) {
		if c.SecurityContext != nil {
			look(path+".securityContext.windowsOptions", c.SecurityContext.WindowsOptions)
		}
	})
}

func checkDNS(p *pod, say report) {
	if p.Spec.DNSPolicy == corev1.DNSClusterFirstWithHostNet {
		say(Warning, "dnsPolicy", "ClusterFirstWithHostNet is not supported on Windows; the pod is treated as "+
			"ClusterFirst",
			"Remove it.")
	}
}
