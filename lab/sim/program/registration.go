package program

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

const (
	// cores is the number of processors of a simulated machine.
	cores = "4"
	// evictionMemory is kubelet's default eviction threshold for memory on Windows. Allocatable memory doesn't include
	// it.
	evictionMemory = "500Mi"
	// attachDetach is an annotation. It means that the controller manager attaches the volumes of this Node.
	attachDetach = "volumes.kubernetes.io/controller-managed-attach-detach"
	// uninitialized is the taint that keeps pods away until a cloud controller has initialized the Node.
	uninitialized = "node.cloudprovider.kubernetes.io/uninitialized"
	// defaultVersion is the version of kubelet if its exe contains none.
	defaultVersion = "v1.36.3"
	// exeHead is how many bytes at the start of an exe are searched for the version.
	exeHead = 4 << 10

	firstRetry, lastRetry = 200 * time.Millisecond, 7 * time.Second
)

// registration is the Node that kubelet found or created.
type registration struct {
	uid        types.UID
	conditions []corev1.NodeCondition
}

// register creates the Node. If the Node exists, register updates the parts that belong to kubelet. After an error, it
// tries again until it succeeds.
func (k *kubelet) register(ctx context.Context) (registration, error) {
	node, err := k.initialNode(ctx)
	if err != nil {
		return registration{}, fmt.Errorf("describing the node: %w", err)
	}
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		made, err := k.tryRegister(ctx, node)
		if err == nil {
			k.log.Info("successfully registered node", "node", k.node)
			return registration{uid: made.UID, conditions: made.Status.Conditions}, nil
		}
		k.log.Info("unable to register node with API server", "node", k.node, "err", err.Error())
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return registration{}, ctx.Err()
		}
	}
}

func (k *kubelet) tryRegister(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	nodes := k.server.client.CoreV1().Nodes()
	made, err := nodes.Create(ctx, node, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		return made, err
	}
	existing, err := nodes.Get(ctx, k.node, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if stale := k.staleLabels(existing, node); len(stale) > 0 {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": stale}})
		if err != nil {
			return nil, err
		}
		if _, err = nodes.Patch(ctx, k.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return nil, err
		}
	}
	status := node.Status
	status.Conditions = nil // conditions are copied from the existing Node, and then changed
	patch, err := json.Marshal(map[string]any{"status": status})
	if err != nil {
		return nil, err
	}
	return nodes.PatchStatus(ctx, k.node, patch)
}

// staleLabels returns the default labels that have a different value on the existing Node. Labels from --node-labels
// aren't included, because kubelet sets them only on new Nodes.
func (k *kubelet) staleLabels(existing, wanted *corev1.Node) map[string]string {
	stale := map[string]string{}
	for _, key := range []string{corev1.LabelHostname, corev1.LabelOSStable, corev1.LabelArchStable,
		contract.BuildLabel} {
		if existing.Labels[key] != wanted.Labels[key] {
			stale[key] = wanted.Labels[key]
		}
	}
	return stale
}

func (k *kubelet) initialNode(ctx context.Context) (*corev1.Node, error) {
	facts, err := k.Host.System.Facts(ctx)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{
		corev1.LabelHostname:   k.node,
		corev1.LabelOSStable:   "windows",
		corev1.LabelArchStable: "amd64",
		contract.BuildLabel:    fmt.Sprintf("10.0.%d", facts.Build),
	}
	maps.Copy(labels, k.flags.labels)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: k.node, Labels: labels,
			Annotations: map[string]string{attachDetach: "true"}},
		Spec: corev1.NodeSpec{Taints: append([]corev1.Taint(nil), k.config.RegisterWithTaints...)},
		Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: k.ip.String()},
				{Type: corev1.NodeHostName, Address: k.node},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{
				KubeletEndpoint: corev1.DaemonEndpoint{Port: contract.KubeletPort}},
			NodeInfo: corev1.NodeSystemInfo{
				// On Windows, kubelet uses the host name as the machine ID (pkg/kubelet/winstats).
				MachineID:     facts.Hostname,
				SystemUUID:    facts.MachineID,
				BootID:        facts.BootID,
				KernelVersion: fmt.Sprintf("10.0.%d.%d", facts.Build, facts.UBR),
				OSImage:       facts.ProductName,
				ContainerRuntimeVersion: "containerd://" +
					strings.TrimPrefix(versionOf(k.Host.Files, contract.PathContainerd), "v"),
				KubeletVersion:  versionOf(k.Host.Files, k.Args[0]),
				OperatingSystem: "windows",
				Architecture:    "amd64",
			},
		},
	}
	if k.flags.cloudProvider == "external" {
		node.Spec.Taints = append(node.Spec.Taints,
			corev1.Taint{Key: uninitialized, Value: "true", Effect: corev1.TaintEffectNoSchedule})
	}
	node.Status.Capacity = k.capacity(facts)
	node.Status.Allocatable = k.allocatable(node.Status.Capacity)
	return node, nil
}

func (k *kubelet) capacity(facts winos.Facts) corev1.ResourceList {
	return corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse(cores),
		corev1.ResourceMemory:           *resource.NewQuantity(facts.Memory, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(facts.DiskTotal, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(int64(k.config.MaxPods), resource.DecimalSI),
	}
}

// allocatable returns the capacity without the resources that are reserved for the system and without the eviction
// threshold.
func (k *kubelet) allocatable(capacity corev1.ResourceList) corev1.ResourceList {
	left := capacity.DeepCopy()
	take := func(name corev1.ResourceName, amount resource.Quantity) {
		quantity, known := left[name]
		if !known {
			return
		}
		if quantity.Sub(amount); quantity.Sign() < 0 {
			quantity = resource.Quantity{}
		}
		left[name] = quantity
	}
	for name, amount := range k.config.SystemReserved {
		take(corev1.ResourceName(name), resource.MustParse(amount))
	}
	take(corev1.ResourceMemory, resource.MustParse(evictionMemory))
	return left
}

// versionOf returns the version in the text of a stand-in's exe.
func versionOf(files winos.Files, exe string) string {
	r, err := files.Open(exe)
	if err != nil {
		return defaultVersion
	}
	defer func() { _ = r.Close() }()
	head := make([]byte, exeHead)
	n, _ := io.ReadFull(r, head)
	if found := versionPattern().Find(head[:n]); found != nil {
		return "v" + strings.TrimPrefix(string(found[1:len(found)-1]), "v")
	}
	return defaultVersion
}

// versionPattern matches a line that contains only a version.
func versionPattern() *regexp.Regexp {
	return regexp.MustCompile(`\nv?[0-9]+\.[0-9]+\.[0-9]+[0-9A-Za-z.+-]*\n`)
}
