package main

import (
	"strings"
	"time"

	"github.com/windows-nodes/wmco/internal/payload"
)

// component is one executable that is built from source.
type component struct {
	// Name is the name of the part in a payload.
	Name string
	// Dir is the directory of the module that pins it, relative to the top of the source tree.
	Dir string
	// Package is the import path of its main package.
	Package string
	// Module is the module that determines its version. It is empty for a program in this source tree, which has
	// the payload's version.
	Module string
	// Stamp returns the linker variables with the program's version, as in the project's own builds.
	Stamp func(v pinned) map[string]string
}

// pinned is a module's version and the time of that version. This time replaces the build time, so that equal pins
// give equal programs.
type pinned struct {
	Version string
	Time    time.Time
}

// plain returns the version without the v.
func (p pinned) plain() string { return strings.TrimPrefix(p.Version, "v") }

const (
	kubernetesModule = "k8s.io/kubernetes"
	cniModule        = "github.com/containernetworking/plugins"
	runhcsModule     = "github.com/Microsoft/hcsshim"
	containerdModule = "github.com/containerd/containerd/v2"
	flannelModule    = "github.com/flannel-io/flannel"
	ecrModule        = "k8s.io/cloud-provider-aws"
	exporterModule   = "github.com/prometheus-community/windows_exporter"
)

// components lists the programs to build. Small programs are first, so that a mistake shows early. Programs that
// must fit the API server are built for each minor version, in the order of a payload.
func components(minors []string) []component {
	all := []component{
		{Name: payload.NameDaemon, Dir: ".", Package: "./cmd/wicd", Stamp: stampDaemon},
		{Name: payload.NameServiceWrapper, Dir: ".", Package: "./cmd/servicewrapper", Stamp: stampNothing},
		{Name: payload.NameKubeLogRunner, Dir: pinsOf(defaultMinor),
			Package: "k8s.io/component-base/logs/kube-log-runner", Module: kubernetesModule, Stamp: stampKubernetes},
		{Name: payload.NameHostLocal, Dir: "payload/cni", Package: cniModule + "/plugins/ipam/host-local",
			Module: cniModule, Stamp: stampCNI},
		{Name: payload.NameWinBridge, Dir: "payload/cni", Package: cniModule + "/plugins/main/windows/win-bridge",
			Module: cniModule, Stamp: stampCNI},
		{Name: payload.NameWinOverlay, Dir: "payload/cni", Package: cniModule + "/plugins/main/windows/win-overlay",
			Module: cniModule, Stamp: stampCNI},
		{Name: payload.NameContainerdShim, Dir: "payload/runhcs",
			Package: runhcsModule + "/cmd/containerd-shim-runhcs-v1", Module: runhcsModule, Stamp: stampMain},
		{Name: payload.NameFlannel, Dir: "payload/flannel", Package: flannelModule, Module: flannelModule,
			Stamp: stampFlannel},
		{Name: payload.NameECRProvider, Dir: "payload/ecr", Package: ecrModule + "/cmd/ecr-credential-provider",
			Module: ecrModule, Stamp: stampECR},
		{Name: payload.NameWindowsExporter, Dir: "payload/exporter", Package: exporterModule, Module: exporterModule,
			Stamp: stampExporter},
		{Name: payload.NameContainerd, Dir: "payload/containerd", Package: containerdModule + "/cmd/containerd",
			Module: containerdModule, Stamp: stampContainerd},
	}
	for _, program := range []struct{ name, command string }{
		{payload.NameKubeProxy, "kube-proxy"}, {payload.NameKubelet, "kubelet"},
	} {
		for _, minor := range minors {
			all = append(all, component{Name: program.name, Dir: pinsOf(minor),
				Package: kubernetesModule + "/cmd/" + program.command, Module: kubernetesModule,
				Stamp: stampKubernetes})
		}
	}
	return all
}

// stampDaemon sets the same variables as the Makefile's build, for cmd/wicd and for all other programs of this
// project.
func stampDaemon(v pinned) map[string]string {
	return map[string]string{"main.version": v.Version,
		"github.com/windows-nodes/wmco/internal/version.version": v.Version}
}

// stampNothing stamps no version. Use it for a program whose services must not restart with each release.
func stampNothing(pinned) map[string]string { return nil }

func stampFlannel(v pinned) map[string]string {
	return map[string]string{flannelModule + "/pkg/version.Version": v.Version}
}

func stampMain(v pinned) map[string]string { return map[string]string{"main.version": v.plain()} }

func stampKubernetes(v pinned) map[string]string {
	major, rest, _ := strings.Cut(v.plain(), ".")
	minor, _, _ := strings.Cut(rest, ".")
	const base = "k8s.io/component-base/version."
	return map[string]string{
		base + "gitVersion":   v.Version,
		base + "gitMajor":     major,
		base + "gitMinor":     minor,
		base + "gitTreeState": "clean",
		base + "buildDate":    v.Time.UTC().Format(time.RFC3339),
	}
}

func stampCNI(v pinned) map[string]string {
	return map[string]string{cniModule + "/pkg/utils/buildversion.BuildVersion": v.Version}
}

func stampECR(v pinned) map[string]string {
	return map[string]string{"main.gitVersion": v.Version, "k8s.io/component-base/version.gitVersion": v.Version}
}

func stampContainerd(v pinned) map[string]string {
	return map[string]string{containerdModule + "/version.Version": v.Version}
}

func stampExporter(v pinned) map[string]string {
	const common = "github.com/prometheus/common/version."
	return map[string]string{common + "Version": v.plain(),
		common + "BuildDate": v.Time.UTC().Format("20060102-15:04:05")}
}
