package lint

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// linuxOnly returns the kind of a volume whose driver exists on Linux only. The other in-tree drivers are served by
// CSI, and CSI drivers declare their operating systems themselves.
func linuxOnly(v *corev1.VolumeSource) string {
	for name, set := range map[string]bool{
		"nfs": v.NFS != nil, "iscsi": v.ISCSI != nil, "fc": v.FC != nil, "rbd": v.RBD != nil, "cephfs": v.CephFS != nil,
		"glusterfs": v.Glusterfs != nil, "flocker": v.Flocker != nil, "quobyte": v.Quobyte != nil,
		"portworxVolume": v.PortworxVolume != nil, "scaleIO": v.ScaleIO != nil, "storageos": v.StorageOS != nil,
		"gitRepo": v.GitRepo != nil,
	} {
		if set {
			return name
		}
	}
	return ""
}

func checkVolumes(p *pod, say report) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		path := fmt.Sprintf("volumes[%d]", i)
		if name := linuxOnly(&v.VolumeSource); name != "" {
			say(Error, path+"."+name, "has no driver for Windows",
				"Use a CSI driver that runs on Windows, such as SMB.")
		}
		if v.EmptyDir != nil && v.EmptyDir.Medium != "" {
			say(Error, path+".emptyDir.medium", fmt.Sprintf("Windows has no medium %s", v.EmptyDir.Medium),
				"Remove it: the volume is then on the node's disk.")
		}
		if v.HostPath != nil && looksLikeLinux(v.HostPath.Path) && !p.allHostProcess() {
			say(Warning, path+".hostPath.path", v.HostPath.Path+" is a Linux path; Windows uses it on drive C:",
				`Use a path of the Windows host, such as C:\data.`)
		}
		for field, mode := range modes(&v.VolumeSource) {
			if mode != nil && *mode != defaultMode {
				say(Warning, path+"."+field, "Windows has no such file modes; they are ignored",
					"Remove it. On Windows, the container's user determines the access to the file.")
			}
		}
	}
}

// defaultMode is the API server's default if a manifest sets no mode.
const defaultMode = 0o644

func modes(v *corev1.VolumeSource) map[string]*int32 {
	all := map[string]*int32{}
	if v.Secret != nil {
		all["secret.defaultMode"] = v.Secret.DefaultMode
	}
	if v.ConfigMap != nil {
		all["configMap.defaultMode"] = v.ConfigMap.DefaultMode
	}
	if v.DownwardAPI != nil {
		all["downwardAPI.defaultMode"] = v.DownwardAPI.DefaultMode
	}
	if v.Projected != nil {
		all["projected.defaultMode"] = v.Projected.DefaultMode
	}
	return all
}

func checkMounts(p *pod, say report) {
	p.containers(func(path string, c *corev1.Container) {
		if len(c.VolumeDevices) > 0 {
			say(Error, path+".volumeDevices", "Windows containers take no block devices", "Use volumeMounts.")
		}
		for i, m := range c.VolumeMounts {
			at := fmt.Sprintf("%s.volumeMounts[%d]", path, i)
			if m.MountPropagation != nil && *m.MountPropagation != corev1.MountPropagationNone {
				say(Error, at+".mountPropagation", "Windows has no mount propagation", "Remove it.")
			}
			if m.SubPath != "" || m.SubPathExpr != "" {
				say(Warning, at+".subPath", "is not supported on Windows by the Kubernetes documentation",
					"Mount the volume as a whole.")
			}
			if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled {
				say(Error, at+".recursiveReadOnly", "Windows has no recursive read-only mounts", "Remove it.")
			}
		}
	})
}

// checkCommands finds commands that start a Linux program in a Windows container.
func checkCommands(p *pod, say report) {
	p.containers(func(path string, c *corev1.Container) {
		look := func(field string, command []string) {
			if len(command) > 0 && looksLikeLinux(command[0]) {
				say(Error, path+"."+field, command[0]+" is a Linux program, which a Windows image does not have",
					"Use cmd.exe, powershell.exe or a program of the image.")
			}
		}
		look("command", c.Command)
		for field, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe,
			"readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
			if probe != nil && probe.Exec != nil {
				look(field+".exec.command", probe.Exec.Command)
			}
		}
		if c.Lifecycle == nil {
			return
		}
		for field, hook := range map[string]*corev1.LifecycleHandler{
			"lifecycle.preStop": c.Lifecycle.PreStop, "lifecycle.postStart": c.Lifecycle.PostStart} {
			if hook != nil && hook.Exec != nil {
				look(field+".exec.command", hook.Exec.Command)
			}
		}
	})
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
				"memory, "+
				"so pods without requests let a node run out of it", "Set requests.memory to what the container needs.")
		}
	})
}
