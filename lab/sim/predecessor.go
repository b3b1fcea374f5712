package sim

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// Predecessor turns the machine into a node of the previous operator. The services of the previous operator are
// running. Their names and the prefix of their descriptions are the same as for services of this operator. `access` is
// the access to C:\k. The names of the programs are different, so that the machine doesn't run simulated programs of
// this operator.
func (m *Machine) Predecessor(ctx context.Context, access winos.Access) error {
	host := m.Host()
	for _, dir := range []string{
		contract.DirK, contract.DirCNIConfig, contract.DirRegistries, contract.DirManifests, contract.DirTLS + `\certs`,
		contract.DirDaemonCerts, contract.DirTemp, `C:\var\lib\cni`,
	} {
		if err := host.Files.MkdirAll(dir, access); err != nil {
			return err
		}
	}
	for path, content := range map[string]string{
		contract.PathKubeconfig: "kind: Config", contract.PathDaemonKubeconfig: "kind: Config",
		contract.DirK + `\imported-certs.pem`: "", contract.PathCNIConfig: "{}",
		contract.PathContainerdConfig:  "version = 2",
		contract.DirTemp + `\hns.psm1`: "#", contract.DirLog + `\kubelet\kubelet.log`: "started",
	} {
		if err := m.place(path, content, access); err != nil {
			return err
		}
	}
	if err := m.PredecessorRemains(); err != nil {
		return err
	}
	depends := map[string][]string{
		contract.ServiceKubelet:       {contract.ServiceContainerd},
		contract.ServiceHybridOverlay: {contract.ServiceKubelet},
		contract.ServiceKubeProxy:     {contract.ServiceHybridOverlay},
	}
	for _, name := range []string{
		contract.ServiceContainerd, contract.ServiceKubelet, contract.ServiceExporter, contract.ServiceHybridOverlay,
		contract.ServiceCSIProxy, contract.ServiceKubeProxy, contract.ServiceDaemon,
	} {
		exe := contract.DirK + `\` + name + "-before.exe"
		if err := m.place(exe, "MZ", access); err != nil {
			return err
		}
		if err := host.Services.Apply(ctx, winos.ServiceConfig{Name: name, Command: exe,
			Description: contract.ManagedDescription + " " + name, Dependencies: depends[name]}); err != nil {
			return err
		}
		if err := host.Services.Start(ctx, name); err != nil {
			return err
		}
	}
	if _, err := m.AddHNSNetwork(winos.HNSNetwork{Name: contract.HybridOverlayNetwork,
		Subnet: netip.MustParsePrefix("10.132.9.0/24")}); err != nil {
		return fmt.Errorf("making its network: %w", err)
	}
	return nil
}

// PredecessorRemains creates the files that remain on a host after the previous operator has cleaned it: data of
// kubelet and containerd that every user can read, including the keys of kubelet.
func (m *Machine) PredecessorRemains() error {
	for path, content := range map[string]string{
		contract.DirKubeletPKI + `\kubelet-client-2026-01-01-00-00-00.pem`:          "key of the node before",
		contract.DirKubeletPKI + `\kubelet-client-current.pem`:                      "key of the node before",
		contract.DirKubeletPKI + `\kubelet.key`:                                     "key of the node before",
		contract.DirKubelet + `\cpu_manager_state`:                                  "{}",
		contract.DirKubelet + `\pods\7f6c\volumes\kubernetes.io~secret\s\token`:     "hunter2",
		contract.DirContainerdData + `\root\io.containerd.metadata.v1.bolt\meta.db`: "bolt",
		contract.DirContainerdData + `\state\debug.txt`:                             "",
	} {
		if err := m.place(path, content, winos.AccessInherit); err != nil {
			return err
		}
	}
	return nil
}

// place creates a file and the directory that contains it.
func (m *Machine) place(path, content string, access winos.Access) error {
	files := m.Host().Files
	if err := files.MkdirAll(path[:strings.LastIndexByte(path, '\\')], winos.AccessInherit); err != nil {
		return err
	}
	return winos.WriteFile(files, path, strings.NewReader(content), access)
}
