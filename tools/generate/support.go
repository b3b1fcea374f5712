package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
	"github.com/windows-nodes/wmco/internal/payload/assembly"
)

const kubernetes = "k8s.io/kubernetes"

// supportPage lists the versions that this release supports, according to the pins and the code.
func supportPage(root string) ([]byte, error) {
	page := &bytes.Buffer{}
	release, err := found(filepath.Join(root, "Makefile"), `(?m)^VERSION \?= (\S+)$`)
	if err != nil {
		return nil, err
	}
	tested, err := pin(filepath.Join(root, "lab", "controlplane"), kubernetes)
	if err != nil {
		return nil, err
	}
	built, err := found(filepath.Join(root, "tools", "payload", "minor.go"), `(?m)^const defaultMinor = "(\S+)"$`)
	if err != nil {
		return nil, err
	}
	minors, err := minorRows(root, minorOf(built))
	if err != nil {
		return nil, err
	}
	programs, err := programRows(root)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(page, generated+"# What is supported\n\nRelease %s. Tests run against Kubernetes %s.\n\n## "+
		"Kubernetes\n\nA kubelet fits API servers of its minor version and of the next three. [The "+
		"payload](../payload.md#kubernetes-versions) explains how to choose the versions.\n\n", release, tested)
	table(page, []string{"kubelet", "API servers", "OpenShift", "In the payload"}, minors)
	fmt.Fprint(page, "## Windows\n\n")
	table(page, []string{"Windows Server", "Build", "RuntimeClass"}, buildRows())
	fmt.Fprint(page, "## Networks\n\n")
	table(page, []string{"Network", "Cluster", "Provided by"}, [][]string{
		{code(blueprint.NetworkOVNKubernetes) + ", with hybrid networking", "OpenShift", "the operator"},
		{code(blueprint.NetworkExternal), "without OpenShift", "other software, such as Calico's pods"},
		{code(blueprint.NetworkFlannel) + ", with its VXLAN backend", "without OpenShift",
			"the operator, in addition to flannel's own pods on Linux nodes"}})
	fmt.Fprint(page, "## Clouds\n\nHosts that are listed by their address may be anywhere. "+
		"[Machines](../machines.md) lists where MachineSets work.\n\n")
	table(page, []string{"Platform", "Additional programs"}, platformRows())
	fmt.Fprint(page, "## Programs\n\n")
	table(page, []string{"Program", "Version"}, programs)
	return append(bytes.TrimRight(page.Bytes(), "\n"), '\n'), nil
}

// minorRows returns the pinned minor versions of Kubernetes, newest first.
func minorRows(root string, byDefault int) ([][]string, error) {
	directories, err := filepath.Glob(filepath.Join(root, "payload", "kubernetes", "*"))
	if err != nil || len(directories) == 0 {
		return nil, errors.Join(errors.New("no Kubernetes is pinned"), err)
	}
	slices.SortFunc(directories, func(a, b string) int { return cmp.Compare(minorOf(b), minorOf(a)) })
	rows := make([][]string, 0, len(directories))
	for _, dir := range directories {
		version, err := pin(dir, kubernetes)
		if err != nil {
			return nil, err
		}
		minor, how := minorOf(version), code("MINORS="+filepath.Base(dir))
		if minor == byDefault {
			how = "always, unless `MINORS` excludes it"
		}
		rows = append(rows, []string{version, fmt.Sprintf("1.%d to 1.%d", minor, minor+payload.MaxSkew),
			openShift(minor), how})
	}
	return rows, nil
}

// openShift returns the releases of OpenShift that a kubelet fits.
func openShift(minor int) string {
	switch first, last := assembly.OpenShift(uint(minor), uint(minor+payload.MaxSkew)); first { //nolint:gosec // small
	case "":
		return "none yet"
	case last:
		return first
	default:
		return first + " to " + last
	}
}

func buildRows() (rows [][]string) {
	for _, b := range contract.WindowsBuilds() {
		build := b.Label()
		if b.Update > 0 {
			build += fmt.Sprintf(".%d or later", b.Update)
		}
		rows = append(rows, []string{strings.TrimPrefix(b.Product, "Windows Server "), build, code(b.RuntimeClass)})
	}
	return rows
}

func platformRows() (rows [][]string) {
	for _, platform := range []contract.Platform{contract.PlatformAWS, contract.PlatformAzure,
		contract.PlatformGCP, contract.PlatformNutanix, contract.PlatformVSphere, contract.PlatformNone} {
		var own []string
		for _, p := range payload.Parts() {
			if p.Platform == platform {
				own = append(own, code(p.Name))
			}
		}
		rows = append(rows, []string{string(platform), strings.Join(own, ", ")})
	}
	return rows
}

// programRows returns the pinned programs other than Kubernetes.
func programRows(root string) (rows [][]string, err error) {
	for _, p := range []struct{ name, dir, module string }{
		{"containerd", "containerd", "github.com/containerd/containerd/v2"},
		{"containerd-shim-runhcs-v1", "runhcs", "github.com/Microsoft/hcsshim"},
		{"CNI plugins", "cni", "github.com/containernetworking/plugins"},
		{"flanneld", "flannel", "github.com/flannel-io/flannel"},
		{"windows_exporter", "exporter", "github.com/prometheus-community/windows_exporter"},
		{"ecr-credential-provider", "ecr", "k8s.io/cloud-provider-aws"},
	} {
		version, err := pin(filepath.Join(root, "payload", p.dir), p.module)
		if err != nil {
			return nil, err
		}
		rows = append(rows, []string{p.name, version})
	}
	return rows, nil
}

// pin returns the version of a module in the go.mod of a directory.
func pin(dir, module string) (string, error) {
	return found(filepath.Join(dir, "go.mod"), `(?m)^(?:require|\t)\s*`+regexp.QuoteMeta(module)+` (v\S+)`)
}

// The function found returns the first group of a regular expression's match in a file.
func found(file, expression string) (string, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	groups := regexp.MustCompile(expression).FindSubmatch(text)
	if groups == nil {
		return "", fmt.Errorf("%s has no text that matches %s", file, expression)
	}
	return string(groups[1]), nil
}

// minorOf returns 36 for v1.36.3, and for a path that ends in 1.36.
func minorOf(version string) int {
	parts := strings.Split(filepath.Base(version), ".")
	if len(parts) < 2 { //nolint:mnd // major and minor
		return 0
	}
	n, _ := strconv.Atoi(parts[1]) // 0 if the text is not a version
	return n
}
