package acceptance

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
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

// DefaultImage is the default image of rows with containers: agnhost, which supports Linux and several Windows builds.
const DefaultImage = "registry.k8s.io/e2e-test-images/agnhost:2.53"

// guardLabel is a label of a namespace. In a namespace with this label, the API server completes pods for Windows.
const guardLabel = contract.Prefix + "workload-guard"

// workloads returns the rows about pods.
func workloads() map[string]trial {
	return map[string]trial{
		"A39": {stage: stageNodes, needs: []Need{NeedContainers, NeedScheduler}, unrun: true, try: workloadsWork,
			readiness: []string{coreNetwork, coreStorage, coreConcurrent, extendNetwork}},
		"A72": {stage: stageNodes, needs: []Need{NeedScheduler}, try: podsArePlaced,
			readiness: []string{coreScheduling}},
		"A73": {stage: stageNodes, try: guardCompletesPods, readiness: []string{coreScheduling}},
	}
}

// makeNamespace creates a namespace for this run.
func (r *run) makeNamespace(ctx context.Context, suffix string, labels map[string]string) (string, error) {
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
func apply(ctx context.Context, r *run, namespace, file string) error {
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

// classOf returns the name of the RuntimeClass for a Windows build.
func classOf(build string) string {
	for _, known := range contract.WindowsBuilds() {
		if known.Label() == build {
			return known.RuntimeClass
		}
	}
	return ""
}

// podsArePlaced tests row A72: the scheduler must place pods by the RuntimeClass of a node's build, and must place no
// pod for Linux on Windows.
func podsArePlaced(ctx context.Context, r *run) error {
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
	if err = r.client.Get(ctx, client.ObjectKey{Name: name}, class); err != nil {
		return fmt.Errorf("reading RuntimeClass %s: %w", name, err)
	}
	if class.Handler != contract.RuntimeClassHandler || class.Scheduling == nil ||
		class.Scheduling.NodeSelector[contract.BuildLabel] != build {
		return wrongf("RuntimeClass %s has the handler %s and selects %v", name, class.Handler, class.Scheduling)
	}
	namespace, err := r.makeNamespace(ctx, "place", nil)
	if err != nil {
		return err
	}
	if err = errors.Join(deploy(ctx, r, namespace, "windows", &name),
		deploy(ctx, r, namespace, "linux", nil)); err != nil {
		return err
	}
	placed := r.await(ctx, r.Timeout, "placing the pods", func(ctx context.Context) (bool, string, error) {
		return placement(ctx, r, namespace, build)
	})
	return errors.Join(placed, r.drop(ctx, namespace))
}

// deploy creates a Deployment of two pods.
func deploy(ctx context.Context, r *run, namespace, name string, class *string) error {
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

// placement reports whether pods for Windows are on nodes of their build, and pods for Linux are on no Windows
// node.
func placement(ctx context.Context, r *run, namespace, build string) (bool, string, error) {
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
			return false, "", wrongf("a pod for build %s is on node %s, which has build %q", build, pod.Spec.NodeName,
				on)
		default:
			bound++
		}
	}
	return bound == 2, fmt.Sprintf("%d of 2 pods for Windows have a node; %s", bound, waiting), nil
}

// unschedulable returns the scheduler's message about a pod.
func unschedulable(pod *corev1.Pod) string {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status != corev1.ConditionTrue {
			return c.Message
		}
	}
	return ""
}

// drop deletes a namespace of this run. It waits until the pods are gone, because a later drain would wait for them.
func (r *run) drop(ctx context.Context, namespace string) error {
	err := r.client.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	return r.await(ctx, r.Timeout, "ending the pods of namespace "+namespace,
		func(ctx context.Context) (bool, string, error) {
			pods := &corev1.PodList{}
			err := r.client.List(ctx, pods, client.InNamespace(namespace))
			return len(pods.Items) == 0, fmt.Sprintf("%d pods still exist", len(pods.Items)), err
		})
}

// guardCompletesPods tests row A73. It creates its pods as dry runs.
func guardCompletesPods(ctx context.Context, r *run) error {
	policy := &unstructured.Unstructured{}
	policy.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1",
		Kind: "MutatingAdmissionPolicy"})
	if err := r.client.Get(ctx, client.ObjectKey{Name: "windows-workload-pod"}, policy); err != nil {
		return cannot("the policies are not installed, or the API server is older than 1.36: %v", err)
	}
	namespace, err := r.makeNamespace(ctx, "workload-guard", map[string]string{guardLabel: "enabled"})
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
			errors.Join(err, errors.New("the API server must answer Invalid"))))
	}
	return errors.Join(completed, r.drop(ctx, namespace))
}
