package kubeadm

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/lab/cluster"
)

// flannelConf is the configuration that flannel's documentation requires for clusters with Windows nodes.
const flannelConf = `{
  "Network": "` + PodNetwork + `",
  "EnableNFTables": false,
  "Backend": {
    "Type": "vxlan",
    "VNI": 4096,
    "Port": 4789
  }
}`

// InstallFlannel creates the objects of flannel's manifests that the operator reads: its namespace and its
// configuration. It creates no pods, because they run on Linux nodes and the lab has none.
func InstallFlannel(ctx context.Context, c *cluster.Cluster) error {
	clients, err := kubernetes.NewForConfig(c.Admin())
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	const name = "kube-flannel"
	_, err = clients.CoreV1().Namespaces().Create(ctx,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making flannel's namespace: %w", err)
	}
	_, err = clients.CoreV1().ConfigMaps(name).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-flannel-cfg"}, Data: map[string]string{"net-conf.json": flannelConf},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("writing flannel's configuration: %w", err)
	}
	return nil
}
