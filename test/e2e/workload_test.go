package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/sim"
)

const linuxNode = "linux-worker"

// The real kube-scheduler must place the example of docs/workloads.md, unchanged, on a Windows node of the matching
// build. It must place pods for Linux on no Windows node.
func TestA72_TheWebServerOfThePageGetsToANodeOfItsBuildAndLinuxPodsDoNot(t *testing.T) {
	t.Parallel()
	o := options(2)
	o.Scheduler = true
	edit := o.Hosts.Edit
	o.Hosts.Edit = func(i int, h *sim.Options) {
		edit(i, h)
		if i == 1 {
			h.Build, h.UBR = 26100, 1742
		}
	}
	s := own(t, o)
	hosts := s.hosts(t, 2)
	s.join(t, hosts...)
	s.linux(t)

	web, service := s.example(t)
	web.Namespace, service.Namespace = metav1.NamespaceDefault, metav1.NamespaceDefault
	*web.Spec.Replicas = 3
	s.put(t, service)
	s.put(t, web)
	linux := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "linux"},
		Spec: *web.Spec.DeepCopy()}
	labels := map[string]string{"app": "linux"}
	linux.Spec.Selector.MatchLabels, linux.Spec.Template.Labels = labels, labels
	linux.Spec.Template.Spec.OS, linux.Spec.Template.Spec.RuntimeClassName = nil, nil
	s.put(t, linux)
	s.placed(t, web, hosts[0].Name)
	s.placed(t, linux, linuxNode)

	// If a pod sets its OS, the API server must refuse fields that Windows doesn't support.
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "root"},
		Spec: *web.Spec.Template.Spec.DeepCopy()}
	pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64)}
	if err := s.Client.Create(t.Context(), pod); !apierrors.IsInvalid(err) {
		t.Errorf("a Windows pod with runAsUser was not refused: %v", err)
	}
}

// The real controllers must add the pods' addresses to the page's Service, and remove them when the node is deleted.
// The stand-in of kubelet writes the pods' status. This test doesn't show that packets arrive.
func TestA39_TheServiceOfThePageHasTheAddressesOfItsPodsOnTheNodeOfTheirBuild(t *testing.T) {
	t.Parallel()
	o := options(1)
	o.Scheduler = true
	s := own(t, o)
	h := s.hosts(t, 1)[0]
	s.join(t, h)
	web, service := s.example(t)
	web.Namespace, service.Namespace = metav1.NamespaceDefault, metav1.NamespaceDefault
	*web.Spec.Replicas = 2
	public := service.DeepCopy()
	public.Name, public.Spec.Type = "public", corev1.ServiceTypeLoadBalancer
	for _, object := range []client.Object{service, public, web} {
		s.put(t, object)
	}
	if service.Spec.ClusterIP == "" || public.Spec.ClusterIP == "" || public.Spec.Ports[0].NodePort == 0 {
		t.Errorf("the specs of the Services are %+v and %+v", service.Spec, public.Spec)
	}
	for _, name := range []string{service.Name, public.Name} {
		s.serves(t, name, web, h.Name, 2)
	}
	h.Machine.PowerCut()
	s.serves(t, service.Name, web, h.Name, 0)
}

// serves waits until a Service has a number of ready endpoints, and all of them are pods of a Deployment on one node.
func (s *stage) serves(t *testing.T, service string, d *appsv1.Deployment, node string, want int) {
	t.Helper()
	s.await(t, fmt.Sprintf("Service %s to have %d endpoints", service, want),
		func(ctx context.Context) (bool, string, error) {
			pods, slices := &corev1.PodList{}, &discoveryv1.EndpointSliceList{}
			if err := errors.Join(
				s.Client.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels)),
				s.Client.List(ctx, slices, client.InNamespace(d.Namespace),
					client.MatchingLabels{discoveryv1.LabelServiceName: service})); err != nil {
				return false, "", err
			}
			addresses := map[string]bool{}
			for _, pod := range pods.Items {
				addresses[pod.Status.PodIP] = pod.Status.PodIP != ""
			}
			ready := 0
			for _, slice := range slices.Items {
				for _, e := range slice.Endpoints {
					if e.Conditions.Ready == nil || !*e.Conditions.Ready {
						continue
					}
					ready++
					if len(e.Addresses) != 1 || !addresses[e.Addresses[0]] || e.NodeName == nil || *e.NodeName != node ||
						len(slice.Ports) != 1 || *slice.Ports[0].Port != 80 {
						return false, fmt.Sprintf("an endpoint is %+v at %+v", e, slice.Ports), nil
					}
				}
			}
			return ready == want, fmt.Sprintf("%d of %d pods are ready", ready, len(pods.Items)), nil
		})
}

// example reads the first YAML block of the page.
func (s *stage) example(t *testing.T) (*appsv1.Deployment, *corev1.Service) {
	t.Helper()
	root, err := cluster.ModuleRoot()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "workloads.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(page), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	first, second, _ := strings.Cut(block, "---\n")
	web, service := &appsv1.Deployment{}, &corev1.Service{}
	if err = errors.Join(yaml.UnmarshalStrict([]byte(first), web),
		yaml.UnmarshalStrict([]byte(second), service)); err != nil {
		t.Fatalf("the example of the page: %v", err)
	}
	if web.Spec.Replicas == nil {
		web.Spec.Replicas = new(int32)
	}
	return web, service
}

// linux creates a node without taints and with the most free resources. The scheduler prefers it for every pod that may
// run anywhere.
func (s *stage) linux(t *testing.T) {
	t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: linuxNode, Labels: map[string]string{
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelHostname: linuxNode}}}
	s.put(t, node)
	before := client.MergeFrom(node.DeepCopy())
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"), corev1.ResourcePods: resource.MustParse("250")}
	node.Status = corev1.NodeStatus{Capacity: room, Allocatable: room, Conditions: []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now()}}}
	// Use a patch, because controllers write the new Node at the same time.
	if err := s.Client.Status().Patch(t.Context(), node, before); err != nil {
		t.Fatal(err)
	}
	s.put(t, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: linuxNode}})
	go func() {
		for tick := time.NewTicker(time.Second); ; {
			select {
			case <-t.Context().Done():
				tick.Stop()
				return
			case <-tick.C:
				if err := s.kubelet(t.Context()); err != nil && t.Context().Err() == nil {
					t.Logf("the kubelet of %s: %v", linuxNode, err)
				}
			}
		}
	}()
}

// kubelet acts as the kubelet of the Linux node, which has no stand-in: it renews the heartbeat, and it finishes the
// deletion of pods.
func (s *stage) kubelet(ctx context.Context) error {
	lease := &coordinationv1.Lease{}
	if err := s.Client.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: linuxNode}, lease); err != nil {
		return err
	}
	now, name, seconds := metav1.NewMicroTime(time.Now()), linuxNode, int32(40)
	lease.Spec.RenewTime, lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = &now, &name, &seconds
	pods := &corev1.PodList{}
	failed := errors.Join(s.Client.Update(ctx, lease), s.Client.List(ctx, pods))
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Spec.NodeName == linuxNode && pod.DeletionTimestamp != nil {
			err := s.Client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
			failed = errors.Join(failed, client.IgnoreNotFound(err))
		}
	}
	return failed
}

// placed waits until all pods of a Deployment are bound to one node.
func (s *stage) placed(t *testing.T, d *appsv1.Deployment, node string) {
	t.Helper()
	s.await(t, "the pods of "+d.Name+" to be on "+node, func(ctx context.Context) (bool, string, error) {
		pods := &corev1.PodList{}
		err := s.Client.List(ctx, pods, client.InNamespace(d.Namespace), client.MatchingLabels(d.Spec.Selector.MatchLabels))
		bound := 0
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" && pod.Spec.NodeName != node {
				return false, "", fmt.Errorf("pod %s is on %s", pod.Name, pod.Spec.NodeName)
			}
			if pod.Spec.NodeName == node {
				bound++
			}
		}
		return bound == int(*d.Spec.Replicas), fmt.Sprintf("%d pods are bound", bound), err
	})
}
