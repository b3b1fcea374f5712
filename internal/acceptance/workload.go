package acceptance

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
)

//go:embed manifests
var manifestFiles embed.FS

// DefaultImage is what rows with containers run: agnhost, which has variants for Linux and for builds
// of Windows.
const DefaultImage = "registry.k8s.io/e2e-test-images/agnhost:2.53"

// guardLabel on a namespace has the API server complete pods for Windows.
const guardLabel = contract.Prefix + "workload-guard"

// workloads are the rows about pods.
func workloads() map[string]trial {
	return map[string]trial{
		"A39": {stage: stageNodes, needs: []Need{NeedContainers, NeedScheduler}, unrun: true, try: (*run).workloadsWork,
			readiness: []string{coreNetwork, coreStorage, coreConcurrent, extendNetwork}},
		"A72": {stage: stageNodes, needs: []Need{NeedScheduler}, try: (*run).podsArePlaced,
			readiness: []string{coreScheduling}},
		"A73": {stage: stageNodes, try: (*run).guardCompletesPods, readiness: []string{coreScheduling}},
	}
}

// namespace makes a namespace of this run's own.
func (r *run) namespace(ctx context.Context, suffix string, labels map[string]string) (string, error) {
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: managedBy + "-" + r.id + "-" + suffix,
		Labels: r.labels()}}
	for key, value := range labels {
		n.Labels[key] = value
	}
	if err := r.client.Create(ctx, n); err != nil {
		return "", fmt.Errorf("creating a namespace: %w", err)
	}
	return n.Name, nil
}

// apply creates the objects of a file in a namespace.
func (r *run) apply(ctx context.Context, namespace, file string) error {
	text, err := manifestFiles.ReadFile("manifests/" + file)
	if err != nil {
		return err
	}
	for part := range strings.SplitSeq(string(text), "\n---\n") {
		object := &unstructured.Unstructured{}
		image := strings.ReplaceAll(part, "image: agnhost", "image: "+r.Image)
		if err = yaml.UnmarshalStrict([]byte(image), &object.Object); err != nil {
			return fmt.Errorf("reading %s: %w", file, err)
		}
		object.SetNamespace(namespace)
		if err = r.client.Create(ctx, object); err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// classOf names the RuntimeClass of a build.
func classOf(build string) string {
	for _, known := range contract.WindowsBuilds() {
		if known.Label() == build {
			return known.RuntimeClass
		}
	}
	return ""
}

// podsArePlaced is A72.
func (r *run) podsArePlaced(ctx context.Context) error {
	nodes, err := r.targets(ctx)
	if err != nil {
		return err
	}
	build := nodes[0].Labels[contract.BuildLabel]
	name := classOf(build)
	if name == "" {
		return wrongf("no RuntimeClass is known for build %s", build)
	}
	class := &nodev1.RuntimeClass{}
	if err = r.await(ctx, r.Timeout, "RuntimeClass "+name, func(ctx context.Context) (bool, string, error) {
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, class)
		return err == nil, "", err
	}); err != nil {
		return err
	}
	if class.Handler != contract.RuntimeClassHandler || class.Scheduling == nil ||
		class.Scheduling.NodeSelector[contract.BuildLabel] != build {
		return wrongf("RuntimeClass %s has the handler %s and selects %v", name, class.Handler, class.Scheduling)
	}
	namespace, err := r.namespace(ctx, "place", nil)
	if err != nil {
		return err
	}
	if err = errors.Join(r.deploy(ctx, namespace, "windows", &name),
		r.deploy(ctx, namespace, "linux", nil)); err != nil {
		return err
	}
	placed := r.await(ctx, r.Timeout, "placing the pods", func(ctx context.Context) (bool, string, error) {
		return r.placement(ctx, namespace, build)
	})
	return errors.Join(placed, r.drop(ctx, namespace))
}

// deploy makes a Deployment of two pods.
func (r *run) deploy(ctx context.Context, namespace, name string, class *string) error {
	labels := map[string]string{"wmco-e2e": name}
	replicas := int32(2)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	d.Spec.Replicas = &replicas
	d.Spec.Selector = &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels = labels
	d.Spec.Template.Spec = corev1.PodSpec{RuntimeClassName: class, Containers: []corev1.Container{{Name: "server",
		Image: r.Image, Args: []string{"netexec"}}}}
	if class != nil {
		d.Spec.Template.Spec.OS = &corev1.PodOS{Name: corev1.Windows}
	}
	return r.client.Create(ctx, d)
}

// placement says whether pods for Windows are on nodes of their build, and those for Linux on none of
// Windows.
func (r *run) placement(ctx context.Context, namespace, build string) (bool, string, error) {
	pods, nodes := &corev1.PodList{}, &corev1.NodeList{}
	if err := errors.Join(r.client.List(ctx, pods, client.InNamespace(namespace)),
		r.client.List(ctx, nodes)); err != nil {
		return false, "", err
	}
	builds := map[string]string{}
	for _, n := range nodes.Items {
		builds[n.Name] = n.Labels[contract.BuildLabel]
	}
	bound, waiting := 0, ""
	for _, pod := range pods.Items {
		on := builds[pod.Spec.NodeName]
		windows := pod.Labels["wmco-e2e"] == "windows"
		switch {
		case !windows && on != "":
			return false, "", wrongf("a pod for Linux is on the Windows node %s", pod.Spec.NodeName)
		case !windows:
		case pod.Spec.NodeName == "":
			waiting = unschedulable(&pod)
		case on != build:
			return false, "", wrongf("a pod for build %s is on node %s of build %q", build, pod.Spec.NodeName, on)
		default:
			bound++
		}
	}
	return bound == 2, fmt.Sprintf("%d of 2 pods for Windows have a node; %s", bound, waiting), nil
}

// unschedulable is what the scheduler says of a pod.
func unschedulable(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// drop removes a namespace of this run, and waits until its pods are gone: a drain would wait for them.
func (r *run) drop(ctx context.Context, namespace string) error {
	err := r.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return r.await(ctx, r.Timeout, "ending the pods of namespace "+namespace,
		func(ctx context.Context) (bool, string, error) {
			pods := &corev1.PodList{}
			err := r.client.List(ctx, pods, client.InNamespace(namespace))
			return len(pods.Items) == 0, fmt.Sprintf("%d are there", len(pods.Items)), err
		})
}

// guardCompletesPods is A73. Its pods are dry runs.
func (r *run) guardCompletesPods(ctx context.Context) error {
	policy := &unstructured.Unstructured{}
	policy.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "MutatingAdmissionPolicy"})
	if err := r.client.Get(ctx, client.ObjectKey{Name: "windows-workload-pod"}, policy); err != nil {
		return cannot("the policies are not installed, or the API server is older than 1.36: %v", err)
	}
	namespace, err := r.namespace(ctx, "guard", map[string]string{guardLabel: "enabled"})
	if err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pod"}, Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelOSStable: string(corev1.Windows)},
		Containers:   []corev1.Container{{Name: "c", Image: r.Image}}}}
	taint := corev1.Taint{Key: contract.TaintKey, Value: contract.TaintValue, Effect: corev1.TaintEffectNoSchedule}
	completed := r.await(ctx, r.Timeout, "completing a pod for Windows",
		func(ctx context.Context) (bool, string, error) {
			made := pod.DeepCopy()
			if err := r.client.Create(ctx, made, client.DryRunAll); err != nil {
				return false, "", err
			}
			ok := made.Spec.OS != nil && made.Spec.OS.Name == corev1.Windows &&
				slices.ContainsFunc(made.Spec.Tolerations, func(t corev1.Toleration) bool {
					return t.Key == taint.Key && (t.Value == taint.Value || t.Operator == corev1.TolerationOpExists)
				})
			return ok, fmt.Sprintf("os %v, tolerations %v", made.Spec.OS, made.Spec.Tolerations), nil
		})
	root := pod.DeepCopy()
	root.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64)}
	if err = r.client.Create(ctx, root, client.DryRunAll); !apierrors.IsInvalid(err) {
		completed = errors.Join(completed, fmt.Errorf("a pod for Windows with runAsUser is not refused as invalid: %w",
			errors.Join(err, errors.New("it must be"))))
	}
	return errors.Join(completed, r.drop(ctx, namespace))
}

// workloadsWork is A39.
func (r *run) workloadsWork(ctx context.Context) error {
	if _, err := r.targets(ctx); err != nil {
		return err
	}
	namespace, err := r.namespace(ctx, "work", nil)
	if err != nil {
		return err
	}
	if err = r.apply(ctx, namespace, "workload.yaml"); err != nil {
		return err
	}
	pods := map[string]*corev1.Pod{}
	for _, name := range []string{"windows", "linux"} {
		if pods[name], err = r.serving(ctx, namespace, name); err != nil {
			return errors.Join(err, r.drop(ctx, namespace))
		}
	}
	problems := r.connects(ctx, namespace, pods)
	for _, extra := range []struct {
		need Need
		try  func(context.Context, string, map[string]*corev1.Pod) error
	}{{NeedLoadBalancer, r.balances}, {NeedStorage, r.stores}, {NeedMetrics, r.scales}} {
		if why, lacks := r.Lacks[extra.need]; lacks {
			r.note("%s was not tried: %s", extra.need, why)
			continue
		}
		problems = errors.Join(problems, extra.try(ctx, namespace, pods))
	}
	return errors.Join(problems, r.drop(ctx, namespace))
}

// serving waits until a pod answers. Its image has gigabytes, so that it may take as long as a join.
func (r *run) serving(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	var found *corev1.Pod
	err := r.await(ctx, r.JoinTimeout, "the pod "+name+" being ready", func(ctx context.Context) (bool, string, error) {
		pods := &corev1.PodList{}
		if err := r.client.List(ctx, pods, client.InNamespace(namespace),
			client.MatchingLabels{"wmco-e2e": name}); err != nil || len(pods.Items) == 0 {
			return false, "there is no pod", err
		}
		found = &pods.Items[0]
		for _, c := range found.Status.Conditions {
			if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
				return found.Status.PodIP != "", "", nil
			}
		}
		return false, fmt.Sprintf("%s: %s %s", found.Status.Phase, unschedulable(found), waits(found)), nil
	})
	return found, err
}

// waits says why containers of a pod do not run.
func waits(pod *corev1.Pod) string {
	for _, c := range pod.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			return w.Reason + " " + w.Message
		}
	}
	return ""
}

// connects tries every way between pods.
func (r *run) connects(ctx context.Context, namespace string, pods map[string]*corev1.Pod) error {
	services := map[string]*corev1.Service{"windows": {}, "linux": {}}
	var problems []error
	for name, service := range services {
		if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, service); err != nil {
			return err
		}
		_, err := r.ask(ctx, pods[name], "/hostname", nil)
		problems = append(problems, tell("from the API server to the pod "+name, err))
	}
	for from, to := range map[string]string{"windows": "linux", "linux": "windows"} {
		for what, host := range map[string]string{
			"by its address":          pods[to].Status.PodIP + ":8080",
			"by its Service":          services[to].Spec.ClusterIP + ":80",
			"by the Service's name":   to + ":80",
			"by the name with domain": to + "." + namespace + ".svc:80",
		} {
			problems = append(problems, tell(fmt.Sprintf("from the pod %s to %s %s", from, to, what),
				r.dial(ctx, pods[from], host)))
		}
	}
	port := services["windows"].Spec.Ports[0].NodePort
	problems = append(problems, tell("from the pod linux to the NodePort of windows",
		r.dial(ctx, pods["linux"], fmt.Sprintf("%s:%d", pods["windows"].Status.HostIP, port))))
	err := errors.Join(problems...)
	if err == nil {
		r.note("API server to both pods; each to the other by address, Service, name; NodePort")
	}
	return err
}

// tell says which way failed.
func tell(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", what, err)
}

// ask makes a request to a pod, through the API server.
func (r *run) ask(ctx context.Context, pod *corev1.Pod, path string, query url.Values) ([]byte, error) {
	request := r.clients.CoreV1().RESTClient().Get().Namespace(pod.Namespace).Resource("pods").
		Name(pod.Name + ":8080").SubResource("proxy").Suffix(path)
	for key, values := range query {
		request = request.Param(key, values[0])
	}
	return request.DoRaw(ctx)
}

// dial has a pod connect to another: agnhost answers {"responses":[…]} or {"errors":[…]}.
func (r *run) dial(ctx context.Context, from *corev1.Pod, target string) error {
	host, port, _ := strings.Cut(target, ":")
	return r.await(ctx, r.Timeout, "connecting to "+target, func(ctx context.Context) (bool, string, error) {
		answer, err := r.ask(ctx, from, "/dial", url.Values{"host": {host}, "port": {port}, "protocol": {"http"},
			"request": {"hostname"}, "tries": {"1"}})
		return err == nil && strings.Contains(string(answer), `"responses"`), string(answer), err
	})
}

// balances waits for a load balancer, and connects through it.
func (r *run) balances(ctx context.Context, namespace string, pods map[string]*corev1.Pod) error {
	if err := r.apply(ctx, namespace, "balancer.yaml"); err != nil {
		return err
	}
	address := ""
	err := r.await(ctx, 2*r.Timeout, "the load balancer's address", func(ctx context.Context) (bool, string, error) {
		s := &corev1.Service{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "balanced"}, s)
		for _, i := range s.Status.LoadBalancer.Ingress {
			address = i.IP + i.Hostname
		}
		return address != "", "", err
	})
	if err != nil {
		return err
	}
	return tell("through the load balancer "+address, r.dial(ctx, pods["linux"], address+":80"))
}

// stores writes to a volume, and reads it in another pod.
func (r *run) stores(ctx context.Context, namespace string, _ map[string]*corev1.Pod) error {
	for _, name := range []string{"writes", "reads"} {
		file := map[string]string{"writes": "storage.yaml", "reads": "storage-read.yaml"}[name]
		if err := r.apply(ctx, namespace, file); err != nil {
			return err
		}
		err := r.await(ctx, r.JoinTimeout, "the pod "+name+" ending", func(ctx context.Context) (bool, string, error) {
			pod := &corev1.Pod{}
			if err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); err != nil {
				return false, "", err
			}
			if pod.Status.Phase == corev1.PodFailed {
				return false, "", wrongf("the pod %s failed: %s", name, pod.Status.Message)
			}
			return pod.Status.Phase == corev1.PodSucceeded, unschedulable(pod) + " " + waits(pod), nil
		})
		if err != nil {
			return tell("storage", err)
		}
	}
	return nil
}

// scales waits until an autoscaler reads the load of pods on Windows.
func (r *run) scales(ctx context.Context, namespace string, _ map[string]*corev1.Pod) error {
	if err := r.apply(ctx, namespace, "scale.yaml"); err != nil {
		return err
	}
	return r.await(ctx, 2*r.Timeout, "the autoscaler reading metrics", func(ctx context.Context) (bool, string, error) {
		h := &autoscalingv2.HorizontalPodAutoscaler{}
		err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "windows"}, h)
		last := ""
		for _, c := range h.Status.Conditions {
			if last = c.Message; c.Type == autoscalingv2.ScalingActive && c.Status == corev1.ConditionTrue {
				return true, "", nil
			}
		}
		return false, last, err
	})
}
