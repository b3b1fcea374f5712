package config_test

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestA36_TheOperatorRunsWithoutPrivileges(t *testing.T) {
	t.Parallel()
	pod := named[*appsv1.Deployment](t, contract.OperatorServiceAccount).Spec.Template.Spec
	if pod.ServiceAccountName != contract.OperatorServiceAccount {
		t.Errorf("the operator runs as %s", pod.ServiceAccountName)
	}
	if pod.HostNetwork || pod.HostPID || pod.HostIPC {
		t.Error("the pod shares a namespace with its host")
	}
	if s := pod.SecurityContext; s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot ||
		s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("the pod's security context is %+v", pod.SecurityContext)
	}
	if v := pod.Volumes; len(v) != 0 {
		t.Errorf("the operator writes no files, but its pod has the volumes %+v", v)
	}
	for _, c := range slices.Concat(pod.InitContainers, pod.Containers) {
		s := c.SecurityContext
		if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.RunAsNonRoot == nil ||
			!*s.RunAsNonRoot ||
			s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Privileged != nil {
			t.Errorf("the security context of %s is %+v", c.Name, s)
			continue
		}
		if s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
			len(s.Capabilities.Add) > 0 {
			t.Errorf("the capabilities of %s are %+v", c.Name, s.Capabilities)
		}
		for _, port := range c.Ports {
			if port.HostPort != 0 {
				t.Errorf("%s uses port %d of its host", c.Name, port.HostPort)
			}
		}
	}
}

func TestTheOperatorIsProbedAndBounded(t *testing.T) {
	t.Parallel()
	deployment := named[*appsv1.Deployment](t, contract.OperatorServiceAccount)
	pod := deployment.Spec.Template.Spec
	if deployment.Namespace != contract.OperatorNamespace || *deployment.Spec.Replicas != 1 ||
		pod.PriorityClassName != "system-cluster-critical" {
		t.Errorf("%d replicas in %s with priority %s", *deployment.Spec.Replicas, deployment.Namespace,
			pod.PriorityClassName)
	}
	if _, selected := pod.NodeSelector["node-role.kubernetes.io/control-plane"]; !selected {
		t.Errorf("the pod's node selector is %v", pod.NodeSelector)
	}
	for _, c := range pod.Containers {
		if c.LivenessProbe == nil || c.ReadinessProbe == nil {
			t.Errorf("%s has no probes", c.Name)
		}
		if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() ||
			c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s has no limits: %+v", c.Name, c.Resources)
		}
	}
}

// The API server checks the Pod Security level of pods, not of Deployments. So this test creates a pod from the
// Deployment's template.
func TestA36_TheNamespaceAdmitsTheOperatorsPodAndNoPrivilegedOne(t *testing.T) {
	t.Parallel()
	admin := connect(t, common(t).Admin())
	template := named[*appsv1.Deployment](t, contract.OperatorServiceAccount).Spec.Template
	for name, c := range map[string]struct {
		change  func(*corev1.PodSpec)
		refused bool
	}{
		"as it is rendered": {func(*corev1.PodSpec) {}, false},
		"privileged": {func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext.Privileged, s.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true), nil
		}, true},
		"with the network of its host": {func(s *corev1.PodSpec) { s.HostNetwork = true }, true},
		"with files of its host": {func(s *corev1.PodSpec) {
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "host", VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: "/"}}})
		}, true},
		"as root": {func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.RunAsUser = new(int64(0)) }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "level"}, Spec: *template.Spec.DeepCopy()}
			c.change(&pod.Spec)
			_, err := admin.CoreV1().Pods(contract.OperatorNamespace).Create(t.Context(), pod,
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if refused := apierrors.IsForbidden(err) && strings.Contains(err.Error(), "PodSecurity"); refused != c.refused ||
				!refused && err != nil {
				t.Error(err)
			}
		})
	}
}

func TestTheNamespaceHasTheLabelsThatUsersKnow(t *testing.T) {
	t.Parallel()
	labels := named[*corev1.Namespace](t, contract.OperatorNamespace).Labels
	for key, value := range map[string]string{
		"openshift.io/cluster-monitoring": "true", "pod-security.kubernetes.io/enforce": "restricted",
		"security.openshift.io/scc.podSecurityLabelSync": "true",
	} {
		if labels[key] != value {
			t.Errorf("label %s is %q", key, labels[key])
		}
	}
}

// A node fetches payload from the addresses in the pod's variables POD_IPS and POD_IP, or through the Service.
// kubelet gives the pod the Service's address in a variable whose name follows from the Service's name.
func TestNodesReachThePayloadServer(t *testing.T) {
	t.Parallel()
	template := named[*appsv1.Deployment](t, contract.OperatorServiceAccount).Spec.Template
	service := named[*corev1.Service](t, "windows-payload")
	for key, value := range service.Spec.Selector {
		if template.Labels[key] != value {
			t.Errorf("the Service selects %s=%s", key, value)
		}
	}
	if service.Namespace != contract.OperatorNamespace || len(service.Spec.Ports) != 1 ||
		service.Spec.Ports[0].Port != contract.PayloadServerPort {
		t.Fatalf("the Service has ports %+v in namespace %s", service.Spec.Ports, service.Namespace)
	}
	c := template.Spec.Containers[0]
	if !slices.ContainsFunc(c.Ports, func(p corev1.ContainerPort) bool {
		return p.Name == service.Spec.Ports[0].TargetPort.StrVal && p.ContainerPort == contract.PayloadServerPort
	}) {
		t.Errorf("the pod has ports %+v", c.Ports)
	}
	for name, path := range map[string]string{"POD_IPS": "status.podIPs", "POD_IP": "status.podIP"} {
		if !slices.ContainsFunc(c.Env, func(e corev1.EnvVar) bool {
			return e.Name == name && e.ValueFrom != nil && e.ValueFrom.FieldRef != nil &&
				e.ValueFrom.FieldRef.FieldPath == path
		}) {
			t.Errorf("the pod does not get its address in %s: %+v", name, c.Env)
		}
	}
	if links := template.Spec.EnableServiceLinks; links != nil && !*links {
		t.Error("the pod does not get the Service's address")
	}
}

// Monitoring selects the port of the operator's metrics by its name, so the payload server's port must have another
// name.
func TestThePayloadServerIsNotTakenForMetrics(t *testing.T) {
	t.Parallel()
	if payloadServer, metrics := named[*corev1.Service](t, "windows-payload"),
		named[*corev1.Service](
			t, "windows-machine-config-operator-metrics"); payloadServer.Spec.Ports[0].Name == metrics.Spec.Ports[0].Name {
		t.Errorf("both Services have a port %s", payloadServer.Spec.Ports[0].Name)
	}
}
