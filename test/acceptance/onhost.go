package acceptance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// DefaultHostImage is the default image of pods that run commands on a host. It contains only a file system for
// HostProcess containers, which run the host's own programs (Microsoft, "Use Windows HostProcess containers").
const DefaultHostImage = "mcr.microsoft.com/oss/kubernetes/windows-host-process-containers-base-image:v1.0.0"

// onHost runs a PowerShell script on a host, in a HostProcess container, and returns its output. The pod is bound to
// the node, so it needs no scheduler. If a pod doesn't start, onHost starts no more pods on this node, because each
// would need the whole time-out.
func (h hour) onHost(ctx context.Context, n *corev1.Node, number, script string) (string, error) {
	if why := h.hostless[n.Name]; why != "" {
		return "", cannot("no HostProcess pod starts: %s", why)
	}
	namespace, err := h.makeNamespace(ctx, strings.ToLower(number), map[string]string{
		"pod-security.kubernetes.io/enforce": "privileged"})
	if err != nil {
		return "", err
	}
	answer, err := h.answer(ctx, namespace, n.Name, script)
	return answer, errors.Join(err, h.drop(ctx, namespace))
}

func (h hour) answer(ctx context.Context, namespace, node, script string) (string, error) {
	pod := hostPod(namespace, node, h.HostImage, script, h.Timeout)
	if err := h.client.Create(ctx, pod); err != nil {
		return "", fmt.Errorf("creating a pod: %w", err)
	}
	started := false
	err := h.await(ctx, h.Timeout, "the script on "+node, func(ctx context.Context) (bool, string, error) {
		now := &corev1.Pod{}
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(pod), now); err != nil {
			return false, "", err
		}
		started = started || now.Status.Phase != corev1.PodPending
		ended := now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed
		return ended, string(now.Status.Phase) + " " + waits(now) + now.Status.Message, nil
	})
	if err != nil && !started && ctx.Err() == nil {
		h.hostless[node] = err.Error()
		return "", cannot("no HostProcess pod starts: %v", err)
	}
	text, logErr := beginning(ctx, h.clients.CoreV1().Pods(namespace).GetLogs(pod.Name,
		&corev1.PodLogOptions{LimitBytes: new(int64(maxLog))}))
	return string(text), errors.Join(err, tell("reading what the script printed", logErr))
}

// hostPod is a pod that runs a script on a node with the rights of the system.
func hostPod(namespace, node, image, script string, timeout time.Duration) *corev1.Pod {
	// -Width is needed because a HostProcess container has no console. Without -Width, tables are cut.
	whole := "& { " + script + " } 2>&1 | Out-String -Width 4096"
	spec := corev1.PodSpec{
		NodeName: node, HostNetwork: true, RestartPolicy: corev1.RestartPolicyNever,
		ActiveDeadlineSeconds: new(int64(timeout.Seconds())),
		OS:                    &corev1.PodOS{Name: corev1.Windows},
		Tolerations:           []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
		SecurityContext: &corev1.PodSecurityContext{WindowsOptions: &corev1.WindowsSecurityContextOptions{
			HostProcess: new(true), RunAsUserName: new(`NT AUTHORITY\SYSTEM`)}},
		Containers: []corev1.Container{{Name: "script", Image: image, Command: []string{"powershell.exe", "-NoProfile",
			"-NonInteractive", "-Command", whole}}},
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "script"}, Spec: spec}
}
