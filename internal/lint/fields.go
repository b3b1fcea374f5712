package lint

import (
	"fmt"
	"strings"
)

// containers is the path that matches all containers of a pod template. A template has no ephemeral containers.
const containers = "initContainers[*]|containers[*]"

// visit calls `found` for each value that a path matches below an object. An example of a path is volumes[*].nfs|iscsi.
// The step volumes[*] matches each element of the list volumes. The step nfs|iscsi matches both fields.
func visit(object any, path string, found func(at string, value any)) {
	visitSteps(object, strings.Split(path, "."), "", found)
}

func visitSteps(value any, steps []string, at string, found func(at string, value any)) {
	if len(steps) == 0 {
		found(at, value)
		return
	}
	object, _ := value.(map[string]any)
	for name := range strings.SplitSeq(steps[0], "|") {
		name, isList := strings.CutSuffix(name, "[*]")
		inner, set := object[name]
		to := join(at, name)
		items, _ := inner.([]any)
		switch {
		case isList:
			for i, item := range items {
				visitSteps(item, steps[1:], fmt.Sprintf("%s[%d]", to, i), found)
			}
		case set:
			visitSteps(inner, steps[1:], to, found)
		}
	}
}

// fields returns a rule that checks the values that a path matches. The rule reports each value that isBad returns true
// for. If isBad is nil, it reports every value. In the message, <value> stands for the reported value.
func fields(name string, when func(*pod) bool, severity Severity, path string, isBad func(value any) bool,
	message, fix string) rule {
	return rule{name, when, func(p *pod, say report) {
		visit(p.fields, path, func(at string, value any) {
			if isBad == nil || isBad(value) {
				say(severity, at, strings.ReplaceAll(message, "<value>", fmt.Sprint(value)), fix)
			}
		})
	}}
}

// defaultMode is the mode that the API server sets if a manifest sets none.
const defaultMode = 0o644

// longestUser is the maximum length of a user name on Windows: a domain, a backslash and a name of 20 characters.
const longestUser = 256 + 1 + 20

// fieldRules returns the rules that check single fields. The rules named linux-security report fields that the API
// server refuses in a pod with os.name windows. The first rule named volume reports volumes whose in-tree driver exists
// for Linux only. No rule reports the other in-tree drivers, because CSI drivers replace them. A CSI driver itself
// declares its operating systems.
func fieldRules() []rule {
	isTrue := func(value any) bool { return value == true }
	other := func(than any) func(any) bool { return func(value any) bool { return value != than } }
	isLinux := func(value any) bool { return looksLikeLinux(fmt.Sprint(value)) }
	isHostNet := func(value any) bool { return value == "ClusterFirstWithHostNet" }
	isLong := func(value any) bool { return len(fmt.Sprint(value)) > longestUser }
	named := func(p *pod) bool { return onWindows(p) && p.Spec.OS != nil }
	unnamed := func(p *pod) bool { return onWindows(p) && p.Spec.OS == nil }
	isolated := func(p *pod) bool { return onWindows(p) && !p.allHostProcess() }
	const (
		shared = "Windows has no such namespace to share; the API server refuses it with os.name windows"
		inHost = "Remove it. A HostProcess container sees the host's network and processes."

		security = "appArmorProfile|seLinuxOptions|seccompProfile|runAsUser|runAsGroup|"
		ofPod    = "securityContext." + security + "seLinuxChangePolicy|fsGroup|fsGroupChangePolicy|sysctls|" +
			"supplementalGroups|supplementalGroupsPolicy"
		ofContainer = containers + ".securityContext." + security + "capabilities|readOnlyRootFilesystem|" +
			"allowPrivilegeEscalation|procMount"
		refused     = "is for Linux only; the API server refuses it with os.name windows"
		ignored     = "is for Linux only; the API server refuses it when os.name is set to windows"
		ownSecurity = "Remove it. Windows has securityContext.windowsOptions instead."

		longUser  = "is longer than Windows allows"
		shortUser = `Use DOMAIN\user with a user of up to 20 characters.`
	)
	return []rule{
		fields("host-namespace", onWindows, Error, "hostPID|hostIPC|hostUsers", nil, shared, inHost),
		fields("host-namespace", onWindows, Error, "shareProcessNamespace", isTrue, shared, inHost),
		fields("host-namespace", isolated, Error, "hostNetwork", nil, shared, inHost),
		fields("linux-security", named, Error, ofPod, nil, refused, ownSecurity),
		fields("linux-security", named, Error, ofContainer, nil, refused, ownSecurity),
		fields("linux-security", unnamed, Warning, ofPod, nil, ignored, ownSecurity),
		fields("linux-security", unnamed, Warning, ofContainer, nil, ignored, ownSecurity),
		fields("privileged", onWindows, Error, containers+".securityContext.privileged", isTrue,
			"Windows has no privileged containers",
			"Use a HostProcess container: securityContext.windowsOptions.hostProcess."),
		fields("user-name", onWindows, Error, "securityContext.windowsOptions.runAsUserName", isLong, longUser,
			shortUser),
		fields("user-name", onWindows, Error, containers+".securityContext.windowsOptions.runAsUserName", isLong,
			longUser, shortUser),
		fields("volume", onWindows, Error, "volumes[*].nfs|iscsi|fc|rbd|cephfs|glusterfs|flocker|quobyte|"+
			"portworxVolume|scaleIO|storageos|gitRepo", nil, "has no driver for Windows",
			"Use a CSI driver that runs on Windows, such as SMB."),
		fields("volume", onWindows, Error, "volumes[*].emptyDir.medium", nil, "Windows has no medium <value>",
			"Remove it: the volume is then on the node's disk."),
		fields("volume", isolated, Warning, "volumes[*].hostPath.path", isLinux,
			"<value> is a Linux path; Windows uses it on drive C:", `Use a path of the Windows host, such as C:\data.`),
		fields("volume", onWindows, Warning, "volumes[*].secret|configMap|downwardAPI|projected.defaultMode",
			other(int64(defaultMode)), "Windows has no such file modes; they are ignored",
			"Remove it. On Windows, the container's user determines the access to the file."),
		fields("mount", onWindows, Error, containers+".volumeDevices", nil, "Windows containers take no block devices",
			"Use volumeMounts."),
		fields("mount", onWindows, Error, containers+".volumeMounts[*].mountPropagation", other("None"),
			"Windows has no mount propagation", "Remove it."),
		fields("mount", onWindows, Warning, containers+".volumeMounts[*].subPath|subPathExpr", nil,
			"is not supported on Windows by the Kubernetes documentation", "Mount the volume as a whole."),
		fields("mount", onWindows, Error, containers+".volumeMounts[*].recursiveReadOnly", other("Disabled"),
			"Windows has no recursive read-only mounts", "Remove it."),
		fields("dns", onWindows, Warning, "dnsPolicy", isHostNet,
			"ClusterFirstWithHostNet is not supported on Windows; the pod is treated as ClusterFirst", "Remove it."),
	}
}
