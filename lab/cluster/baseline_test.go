package cluster

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// The test imitates the changes of other tests: new objects (in a new namespace, on a node, with a finalizer), changed
// objects, and deleted objects, including a CRD with its objects.
func TestAControlPlaneIsRestoredForTheNextTest(t *testing.T) {
	t.Parallel()
	c := startCluster(t, Options{})
	dirs, err := OpenShiftCRDDirs(t.Context(), "config/v1")
	must(t, err)
	_, err = InstallCRDs(t.Context(), c.Admin(), CRDOptions{Paths: dirs,
		Names: []string{"proxies.config.openshift.io", "images.config.openshift.io"}, Filter: OpenShiftDefault})
	must(t, err)
	client := clientFor(t, c.Admin())
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}
	_, err = client.CoreV1().ConfigMaps("default").Create(t.Context(), kept, metav1.CreateOptions{})
	must(t, err)
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1",
		Resource: "customresourcedefinitions"}
	any, err := dynamic.NewForConfig(c.Admin())
	must(t, err)

	before, err := c.Baseline(t.Context())
	must(t, err)
	must(t, before.Restore(t.Context())) // the baseline must be stable without changes

	for _, namespace := range []string{"default", "another"} {
		if namespace != "default" {
			_, err = client.CoreV1().Namespaces().Create(t.Context(),
				&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
			must(t, err)
		}
		held := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "held", Finalizers: []string{"example.com/held"}}}
		_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), held, metav1.CreateOptions{})
		must(t, err)
	}
	_, err = client.CoreV1().Nodes().Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}},
		metav1.CreateOptions{})
	must(t, err)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod"}, Spec: corev1.PodSpec{NodeName: "node",
		Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	_, err = client.CoreV1().Pods("kube-public").Create(t.Context(), pod, metav1.CreateOptions{})
	must(t, err)
	kept.Data["a"] = "changed"
	_, err = client.CoreV1().ConfigMaps("default").Update(t.Context(), kept, metav1.UpdateOptions{})
	must(t, err)
	must(t, client.RbacV1().ClusterRoles().Delete(t.Context(), "view", metav1.DeleteOptions{}))
	_, err = client.RbacV1().ClusterRoles().Create(t.Context(),
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "new"}}, metav1.CreateOptions{})
	must(t, err)
	must(t, any.Resource(definitions).Delete(t.Context(), "proxies.config.openshift.io", metav1.DeleteOptions{}))

	_, err = client.CoreV1().Events("default").Create(t.Context(), &corev1.Event{ObjectMeta: metav1.ObjectMeta{
		Name: "event"}, InvolvedObject: corev1.ObjectReference{Namespace: "default"}}, metav1.CreateOptions{})
	must(t, err)

	must(t, before.Restore(t.Context()))
	events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	must(t, err)
	for _, e := range events.Items {
		t.Errorf("the event %s was not deleted", e.Name)
	}
	after, err := c.Baseline(t.Context())
	must(t, err)
	for ref, object := range before.objects {
		if now := after.objects[ref]; now == nil || !isSame(object, now) {
			t.Errorf("%s was not restored", ref)
		}
	}
	for ref := range after.objects {
		if before.objects[ref] == nil {
			t.Errorf("%s was not deleted", ref)
		}
	}
	differences, err := before.restoreOnce(t.Context())
	if len(differences) > 0 || err != nil {
		t.Errorf("there are still differences: %s, %v", strings.Join(differences, ", "), err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
