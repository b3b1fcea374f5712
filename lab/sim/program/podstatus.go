package program

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// running(pod, ip) returns the status of a pod whose containers are all running and ready, and whose init containers
// have all succeeded.
func (l *podLoop) running(pod *corev1.Pod, ip string) corev1.PodStatus {
	now := metav1.NewTime(l.Host.System.Now())
	status := corev1.PodStatus{
		Phase:     corev1.PodRunning,
		HostIP:    l.ip.String(),
		HostIPs:   []corev1.HostIP{{IP: l.ip.String()}},
		PodIP:     ip,
		PodIPs:    []corev1.PodIP{{IP: ip}},
		StartTime: &now,
	}
	if pod.Status.StartTime != nil {
		status.StartTime = pod.Status.StartTime
	}
	for _, condition := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
		corev1.PodScheduled,
	} {
		status.Conditions = append(status.Conditions,
			corev1.PodCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: now})
	}
	for _, c := range pod.Spec.InitContainers {
		done := containerStatus(pod, c)
		done.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: now, FinishedAt: now,
			ContainerID: done.ContainerID}
		status.InitContainerStatuses = append(status.InitContainerStatuses, done)
	}
	for _, c := range pod.Spec.Containers {
		up, started := containerStatus(pod, c), true
		up.Started = &started
		up.State.Running = &corev1.ContainerStateRunning{StartedAt: now}
		status.ContainerStatuses = append(status.ContainerStatuses, up)
	}
	return status
}

func containerIDs(pod *corev1.Pod) (ids []string) {
	for _, c := range pod.Status.ContainerStatuses {
		ids = append(ids, c.ContainerID)
	}
	return ids
}

func containerStatus(pod *corev1.Pod, c corev1.Container) corev1.ContainerStatus {
	return corev1.ContainerStatus{
		Name: c.Name, Ready: true, Image: c.Image, ImageID: c.Image,
		ContainerID: "containerd://" + string(pod.UID) + "-" + c.Name,
	}
}

// The type addresses assigns addresses of the pod network to pods.
type addresses struct {
	taken map[types.UID]string
}

// firstPodAddress is the first address that a pod can get. The addresses before it are for the network, the gateway,
// the host and kube-proxy's endpoint.
const firstPodAddress = 10

func (a addresses) take(pod types.UID, subnet netip.Prefix) string {
	if ip, known := a.taken[pod]; known {
		return ip
	}
	used := map[string]bool{}
	for _, ip := range a.taken {
		used[ip] = true
	}
	ip := subnet.Masked().Addr()
	for range firstPodAddress {
		ip = ip.Next()
	}
	for used[ip.String()] && subnet.Contains(ip.Next()) {
		ip = ip.Next()
	}
	a.taken[pod] = ip.String()
	return ip.String()
}

func (a addresses) release(pod types.UID) { delete(a.taken, pod) }
