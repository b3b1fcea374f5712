package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// statusRetry is the delay after a failed report.
const statusRetry = time.Second

// reportStatus reports the conditions of the Node when they change, and at regular intervals. When the Node becomes
// ready, it also tells the pods that they can start.
func (k *kubelet) reportStatus(ctx context.Context, registered registration, pods *podLoop) error {
	ticker := time.NewTicker(k.options.Poll)
	defer ticker.Stop()
	held := conditions{held: registered.conditions}
	machine := health{host: k.Host}
	var next time.Time
	for {
		problem := machine.problem(ctx)
		pods.setReady(problem == "")
		now := k.Host.System.Now()
		if held.set(problem, now) || !time.Now().Before(next) {
			if err := k.patchConditions(ctx, held.at(now)); err != nil {
				k.log.Info("failed to patch node status", "err", err.Error())
				next = time.Now().Add(statusRetry)
			} else {
				next = time.Now().Add(k.options.StatusInterval)
			}
		}
		select {
		case <-ticker.C:
		case <-k.unknown:
			next = time.Time{}
		case <-ctx.Done():
			return nil
		}
	}
}

// watchNode watches the Node until ctx ends. If the cluster has marked the Node as unknown, watchNode requests a new
// report of the status. The real kubelet compares its Node with its own state every ten seconds.
func (k *kubelet) watchNode(ctx context.Context) {
	look := func(obj any) {
		node, ok := obj.(*corev1.Node)
		if !ok || !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
		}) {
			return
		}
		select {
		case k.unknown <- struct{}{}:
		default:
		}
	}
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(k.server.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
			fields.OneTermEqualSelector(metav1.ObjectNameField, k.node)),
		ObjectType: &corev1.Node{},
		Handler:    cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }},
	})
	informer.RunWithContext(ctx)
}

func (k *kubelet) patchConditions(ctx context.Context, conditions []corev1.NodeCondition) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": conditions}})
	if err != nil {
		return fmt.Errorf("writing the node's conditions: %w", err)
	}
	_, err = k.server.client.CoreV1().Nodes().PatchStatus(ctx, k.node, patch)
	return err
}

// The type health checks what a node needs to run pods.
type health struct {
	host winos.Host
	// network is the name of the network in the CNI configuration. file describes the version of the configuration that
	// was last read.
	file    winos.FileInfo
	network string
}

const runtimeDown = "container runtime is down"

// problem returns the reason why the Node isn't ready, in the same words as kubelet. If the Node is ready, problem
// returns an empty string.
func (h *health) problem(ctx context.Context) string {
	runtime, err := h.host.Services.Get(ctx, contract.ServiceContainerd)
	if err != nil || runtime.State != winos.ServiceRunning {
		return runtimeDown
	}
	if err := h.readNetwork(); err != nil {
		return "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
			"message:Network plugin returns error: cni plugin not initialized"
	}
	if _, err := h.host.Network.HNSNetwork(ctx, h.network); err != nil {
		return "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady " +
			"message:Network plugin returns error: HNS network " + h.network + " not found"
	}
	return ""
}

// readNetwork reads the CNI configuration if the file has changed.
func (h *health) readNetwork() error {
	path, err := h.networkFile()
	if err != nil {
		return err
	}
	info, err := h.host.Files.Stat(path)
	if err != nil {
		return err
	}
	if info == h.file && h.network != "" {
		return nil
	}
	content, err := winos.ReadFile(h.host.Files, path)
	if err != nil {
		return err
	}
	var config struct {
		Name string `json:"name"`
		Type string `json:"type"`
	}
	if err := json.Unmarshal(content, &config); err != nil {
		return fmt.Errorf("reading the CNI configuration: %w", err)
	}
	if config.Name == "" || config.Type == "" {
		return errors.New("reading the CNI configuration: name or type is missing")
	}
	h.file, h.network = info, config.Name
	return nil
}

// networkFile returns the path of the CNI configuration that containerd reads. If the operator's file exists, it is
// this file. If the operator's file doesn't exist and containerd is configured for an external network, it is the first
// file of that network.
func (h *health) networkFile() (string, error) {
	if _, err := h.host.Files.Stat(contract.PathCNIConfig); err == nil {
		return contract.PathCNIConfig, nil
	}
	config, err := winos.ReadFile(h.host.Files, contract.PathContainerdConfig)
	if err != nil || !strings.Contains(string(config), "conf_dir = '"+contract.DirExternalCNIConfig+"'") {
		return contract.PathCNIConfig, err
	}
	files, err := h.host.Files.List(contract.DirExternalCNIConfig)
	if err != nil || len(files) == 0 {
		return contract.PathCNIConfig, err
	}
	return contract.DirExternalCNIConfig + `\` + files[0].Name, nil
}

// The type conditions contains the conditions of the Node and the times of their changes.
type conditions struct {
	held []corev1.NodeCondition
}

// set updates the conditions. It reports whether a condition has changed.
func (c *conditions) set(problem string, now time.Time) bool {
	wanted := []corev1.NodeCondition{
		{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientMemory",
			Message: "kubelet has sufficient memory available"},
		{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasNoDiskPressure",
			Message: "kubelet has no disk pressure"},
		{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "KubeletHasSufficientPID",
			Message: "kubelet has sufficient PID available"},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			Message: "kubelet is posting ready status"},
	}
	if problem != "" {
		ready := &wanted[len(wanted)-1]
		ready.Status, ready.Reason, ready.Message = corev1.ConditionFalse, "KubeletNotReady", problem
	}
	changed := false
	for i := range wanted {
		w := &wanted[i]
		w.LastTransitionTime = metav1.NewTime(now)
		at := slices.IndexFunc(c.held, func(h corev1.NodeCondition) bool { return h.Type == w.Type })
		if at < 0 {
			changed = true
			continue
		}
		h := c.held[at]
		if h.Status == w.Status {
			w.LastTransitionTime = h.LastTransitionTime
		}
		changed = changed || h.Status != w.Status || h.Reason != w.Reason || h.Message != w.Message
	}
	c.held = wanted
	return changed
}

// at(now) returns the conditions with now as the time of the report.
func (c *conditions) at(now time.Time) []corev1.NodeCondition {
	report := slices.Clone(c.held)
	for i := range report {
		report[i].LastHeartbeatTime = metav1.NewTime(now)
	}
	return report
}
