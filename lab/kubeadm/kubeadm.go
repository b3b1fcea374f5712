// Package kubeadm makes a local control plane look like a cluster that kubeadm configured: the real kubeadm writes the
// cluster's objects.
//
// The lab and the tests use it. It installs nothing of OpenShift. Product code never imports it.
package kubeadm

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// PodNetwork is the prefix of pods, as in flannel's own manifests.
const PodNetwork = "10.244.0.0/16"

// configuration is what Install passes to kubeadm. advertiseAddress is in a network reserved for documentation. kubeadm
// refuses the loopback address, and the lab doesn't read the files that kubeadm writes this address to.
const configuration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: 192.0.2.1, bindPort: 6443}
nodeRegistration: {name: lab, criSocket: "unix:///run/containerd/containerd.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %s
controlPlaneEndpoint: %s
networking: {serviceSubnet: %s, podSubnet: %s}
`

// Build returns the path of kubeadm. If the cache lacks kubeadm, it builds it.
func Build(ctx context.Context, options cluster.BuildOptions) (path string, err error) {
	return cluster.BuildExtra(ctx, options, "kubeadm")
}

// Install runs the phases of `kubeadm init` that write objects. A repeated call changes nothing. The first call
// builds kubeadm.
func Install(ctx context.Context, c *cluster.Cluster, progress io.Writer) error {
	program, err := Build(ctx, cluster.BuildOptions{Progress: progress})
	if err != nil {
		return err
	}
	clients, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	version, err := clients.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking the API server for its version: %w", err)
	}
	server, err := url.Parse(c.URL)
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	path := filepath.Join(c.DataDir, "kubeadm.yaml")
	text := fmt.Sprintf(configuration, version.GitVersion, server.Host, cluster.ServiceNetwork, PodNetwork)
	if err = os.WriteFile(path, []byte(text), 0o600); err != nil {
		return fmt.Errorf("writing kubeadm's configuration: %w", err)
	}
	for _, phase := range []string{"upload-config kubeadm", "bootstrap-token", "addon coredns", "addon kube-proxy"} {
		args := append([]string{"init", "phase"}, strings.Fields(phase)...)
		args = append(args, "--config", path, "--kubeconfig", c.Kubeconfig)
		if output, err := exec.CommandContext(ctx, program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("running kubeadm's phase %s: %w: %s", phase, err, output)
		}
	}
	return nil
}
