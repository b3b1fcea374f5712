package e2e_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/cloud"
)

// noFacts returns the resources that the operator may read but that hold neither settings nor facts, each with the
// reason.
func noFacts() map[string]string {
	return map[string]string{
		"nodes": "the subject", "windowsinstances": "the subject; its deletion is a removal",
		"machines": "its deletion is a removal", "machinesets": "only counts Machines",
		"pods": "what is drained", "daemonsets": "says what a drain leaves alone",
		"certificatesigningrequests": "a question to the operator", "namespaces": "nothing of it is read",
		"leases": "says who leads", "customresourcedefinitions": "see TestA80_HostsRejoinUntouchedWhenTheKindOfInstancesIsCreatedAgain",
		"endpointslices": "the API server writes it again", "servicecidrs": "can't be changed, nor deleted while it is used",
	}
}

// removals returns the lists in which a missing item counts as removed (A80). The operator reads them completely.
func removals() []string {
	return []string{"imagedigestmirrorsets", "imagetagmirrorsets", "imagecontentsourcepolicies"}
}

// row is one object that the operator may read. The test deletes and garbles it.
type row struct {
	resource string
	object   *unstructured.Unstructured
}

func (r row) String() string {
	return strings.TrimPrefix(r.object.GetNamespace()+"/", "/") + r.resource + "/" + r.object.GetName()
}

// table lists every object of the scene that the operator may read. If the operator has a right to a single object,
// this object must exist.
func table(t *testing.T, s *stage, admin client.Client) (rows []row) {
	t.Helper()
	seen := map[string]bool{}
	for _, r := range s.rights(t, right{}, contract.OperatorServiceAccount) {
		reads := slices.Contains([]string{"get", "list", "watch"}, r.verb)
		if _, spared := noFacts()[r.resource]; !reads || spared {
			continue
		}
		kind, err := admin.RESTMapper().KindFor(schema.GroupVersionResource{Group: r.group, Resource: r.resource})
		must(t, err)
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		must(t, admin.List(t.Context(), list, client.InNamespace(r.namespace)))
		found := false
		for _, object := range list.Items {
			if r.name != "" && object.GetName() != r.name {
				continue
			}
			one := row{r.resource, &object}
			if found = true; !seen[one.String()] {
				seen[one.String()] = true
				rows = append(rows, one)
			}
		}
		if !found {
			t.Errorf("the scene has no %s %s in %q, but the operator may %s it: "+
				"create one in the scene, so that this test covers it",
				r.resource, r.name, r.namespace, r.verb)
		}
	}
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.String(), b.String()) })
	return rows
}

// garbled returns the object with content that the API server accepts but that can't be parsed. If the object has no
// such content, garbled returns nil.
func garbled(r row) *unstructured.Unstructured {
	const garbage = "garbage: [\x01"
	o := r.object.DeepCopy()
	set := func(value any, path ...string) { _ = unstructured.SetNestedField(o.Object, value, path...) }
	switch r.resource {
	case "configmaps", "secrets":
		text := garbage
		if r.resource == "secrets" {
			text = base64.StdEncoding.EncodeToString([]byte(garbage))
		}
		if o.Object["type"] == string(corev1.SecretTypeDockerConfigJson) {
			text = base64.StdEncoding.EncodeToString([]byte(`{"auths":["x"]}`))
		}
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		for key := range data {
			set(text, "data", key)
		}
		if len(data) == 0 {
			return nil
		}
	case "windowsmachineconfigs":
		set(map[string]any{"maxPods": "sixty"}, "spec", "kubelet", "config")
	case "infrastructures":
		set("", "status", "apiServerInternalURI")
		set(map[string]any{"type": ""}, "status", "platformStatus")
	case "networks":
		if o.GroupVersionKind().Group == configv1.GroupName {
			set([]any{garbage}, "spec", "serviceNetwork")
			break
		}
		set([]any{map[string]any{"cidr": garbage, "hostPrefix": int64(24)}}, "spec", "defaultNetwork",
			"ovnKubernetesConfig", "hybridOverlayConfig", "hybridClusterNetwork")
	case "proxies":
		set("http://%zz", "spec", "httpProxy")
	case "images":
		set("nowhere", "spec", "additionalTrustedCA", "name")
	case "controllerconfigs":
		set(base64.StdEncoding.EncodeToString([]byte(garbage)), "spec", "kubeAPIServerServingCAData")
	case "machineconfigpools":
		set("", "spec", "configuration", "name")
		set("", "status", "configuration", "name")
	case "machineconfigs":
		set(map[string]any{"ignition": garbage}, "spec", "config")
	case "imagecontentsourcepolicies": // the API server validates the sources of the other mirror kinds
		rules, _, _ := unstructured.NestedSlice(o.Object, "spec", "repositoryDigestMirrors")
		set(append(rules, map[string]any{"source": "no host/x"}), "spec", "repositoryDigestMirrors")
	case "roles":
		set([]any{}, "rules")
	default:
		return nil
	}
	return o
}

// inBinaryData returns a ConfigMap whose content is in binaryData. For other objects, it returns nil.
func inBinaryData(r row) *unstructured.Unstructured {
	o := r.object.DeepCopy()
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	if r.resource != "configmaps" || len(data) == 0 {
		return nil
	}
	moved := map[string]any{}
	for key, text := range data {
		moved[key] = base64.StdEncoding.EncodeToString([]byte(text))
	}
	delete(o.Object, "data")
	o.Object["binaryData"] = moved
	return o
}

// observer records disruptions of Nodes and Machines.
type observer struct {
	mu    sync.Mutex
	notes []string
}

func (o *observer) take() (notes []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	notes, o.notes = o.notes, nil
	return notes
}

// observeNodes starts to record every Node that is cordoned, deleted or gets another desired revision.
func observeNodes(t *testing.T, admin client.WithWatch) *observer {
	t.Helper()
	o, nodes := &observer{}, &corev1.NodeList{}
	must(t, admin.List(t.Context(), nodes))
	revisions := map[string]string{}
	for _, n := range nodes.Items {
		revisions[n.Name] = n.Annotations[contract.DesiredRevisionAnnotation]
	}
	w, err := admin.Watch(t.Context(), &corev1.NodeList{}, &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: nodes.ResourceVersion}})
	must(t, err)
	t.Cleanup(w.Stop)
	go func() {
		for e := range w.ResultChan() {
			n, ok := e.Object.(*corev1.Node)
			note := ""
			switch {
			case !ok:
				note = fmt.Sprintf("the watch ended: %v", e.Object)
			case e.Type == watch.Deleted:
				note = n.Name + " is deleted"
			case n.Spec.Unschedulable:
				note = n.Name + " is cordoned"
			case n.Annotations[contract.DesiredRevisionAnnotation] != revisions[n.Name]:
				note = n.Name + " is told revision " + n.Annotations[contract.DesiredRevisionAnnotation]
			}
			if note != "" {
				o.mu.Lock()
				o.notes = append(o.notes, note)
				o.mu.Unlock()
			}
		}
	}()
	return o
}

// put creates or updates an object.
func put(ctx context.Context, admin client.Client, want *unstructured.Unstructured) error {
	object, now := want.DeepCopy(), want.DeepCopy()
	err := admin.Get(ctx, client.ObjectKeyFromObject(want), now)
	if err == nil {
		object.SetResourceVersion(now.GetResourceVersion())
		object.SetUID(now.GetUID())
		err = admin.Update(ctx, object)
	} else if apierrors.IsNotFound(err) {
		object.SetResourceVersion("")
		object.SetUID("")
		object.SetManagedFields(nil)
		err = admin.Create(ctx, object)
	}
	if status, has := want.Object["status"]; has && err == nil && want.GetKind() != "WindowsMachineConfig" {
		object.Object["status"] = status
		err = client.IgnoreNotFound(admin.Status().Update(ctx, object)) // most kinds have no status subresource
	}
	return err
}

// wrong returns the messages in the settings' status that report a problem.
func wrong(config *v1alpha1.WindowsMachineConfig) (texts []string) {
	for _, c := range config.Status.Conditions {
		isBad := (c.Type == v1alpha1.ConditionDegraded) == (c.Status == metav1.ConditionTrue)
		if isBad && c.Type != v1alpha1.ConditionUpgradeable {
			texts = append(texts, c.Message)
		}
	}
	for _, r := range config.Status.RejectedSettings {
		texts = append(texts, r.Message)
	}
	for _, r := range config.Status.RejectedEntries {
		texts = append(texts, contract.InstancesConfigMap+" "+r.Key+": "+r.Message)
	}
	return texts
}

// names reports whether a condition, a rejected setting, a rejected entry or a new event names an object. Many objects
// have the name "cluster", so their kind must be named as well.
func (s *stage) names(ctx context.Context, r row, since time.Time) (bool, string, error) {
	names := []string{r.object.GetName()}
	if names[0] == "cluster" {
		names[0] = r.object.GetKind() + " cluster"
	}
	fields := map[string][]string{"proxies": {"HTTP_PROXY"}, "windowsmachineconfigs": {"maxPods"}}
	names = append(names, fields[r.resource]...)
	config, list := &v1alpha1.WindowsMachineConfig{}, &eventsv1.EventList{}
	err := client.IgnoreNotFound(s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config))
	if err == nil {
		err = s.Client.List(ctx, list)
	}
	texts := wrong(config)
	for _, e := range list.Items {
		at := e.EventTime.Time
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		if e.ReportingController == contract.OperatorServiceAccount && at.After(since) {
			texts = append(texts, e.Regarding.Name+": "+e.Note)
		}
	}
	for _, text := range texts {
		if slices.ContainsFunc(names, func(name string) bool { return strings.Contains(text, name) }) {
			return true, text, err
		}
	}
	return false, strings.Join(texts, "; "), err
}

// quiet returns the rows that no status and no event mentions, each with the reason.
func quiet() map[string]string {
	const unread = "nothing names it, so nothing of it is read"
	const next = "whoever needs it next writes it again"
	return map[string]string{
		"kube-system/configmaps/extension-apiserver-authentication":                   "the API server writes it again",
		"openshift-config/configmaps/kube-root-ca.crt":                                unread,
		contract.MachineConfigNamespace + "/secrets/" + contract.BootstrapTokenSecret: "Kubernetes writes it again",
		ours("configmaps", "kube-root-ca.crt"):                                        unread,
		ours("configmaps", contract.SlotsConfigMap):                                   next,
		ours("configmaps", contract.ReplacementsConfigMap):                            next,
		ours("configmaps", contract.ReleasedConfigMap):                                next,
		ours("secrets", contract.MemorySecret):                                        next,
	}
}

func ours(resource, name string) string {
	return contract.OperatorNamespace + "/" + resource + "/" + name
}

// For each object that the operator may read, the test deletes it, and then makes its content unreadable. No node may
// be cordoned, removed or get another desired revision. A condition or an event must name the object, or the operator
// must write the object again. The operator's RBAC rights define the list of objects.
func TestA80_NoObjectThatIsDeletedOrGarbledDisruptsANode(t *testing.T) {
	t.Parallel()
	o := cloudOptions(1)
	o.Settings.Trust.AdditionalCA = "windows-cas"
	o.Settings.Logging.Debug = true // true is not the default
	s := own(t, o)
	admin, err := client.NewWithWatch(s.Cluster.Admin(), client.Options{})
	must(t, err)
	furnish(t, admin)
	s.join(t, s.hosts(t, 1)...)
	// The first Machine of the set has the wrong key, so the set creates a replacement Machine. The replacement takes
	// a slot and is counted.
	s.Cloud.Spoil("table", cloud.FaultWrongKey, 1)
	s.set(t, "table", 1)
	s.running(t, "table", 1)
	desired := s.config(t).Status.DesiredRevision
	rows := slices.DeleteFunc(table(t, s, admin), func(r row) bool { // skip a revision that no node has
		revision, is := strings.CutPrefix(r.object.GetName(), contract.ServicesConfigMapPrefix+"0.")
		return is && "0."+revision != desired
	})
	nodes := observeNodes(t, admin)
	for _, r := range rows {
		t.Run(r.String(), func(t *testing.T) {
			if !slices.Contains(removals(), r.resource) {
				s.suffers(t, admin, r, "deleted", func() error { return admin.Delete(t.Context(), r.object.DeepCopy()) })
				// Delete the object again, and create it at once.
				must(t, client.IgnoreNotFound(admin.Delete(t.Context(), r.object.DeepCopy())))
				s.putBack(t, admin, r.object)
			}
			for what, bad := range map[string]*unstructured.Unstructured{"garbage": garbled(r),
				"binaryData": inBinaryData(r)} {
				if bad != nil {
					s.suffers(t, admin, r, what, func() error {
						return retry.RetryOnConflict(retry.DefaultRetry, func() error { return put(t.Context(), admin, bad) })
					})
				}
			}
			for _, note := range nodes.take() {
				t.Error(note)
			}
		})
	}
	s.await(t, "the operator to report no problem", func(ctx context.Context) (bool, string, error) {
		config := &v1alpha1.WindowsMachineConfig{}
		err := s.Client.Get(ctx, client.ObjectKey{Name: contract.MachineConfigObject}, config)
		return len(wrong(config)) == 0, strings.Join(wrong(config), "; "), err
	})
	for _, note := range nodes.take() {
		t.Errorf("after all rows: %s", note)
	}
}

// suffers changes an object. It waits until a status or an event names the object, or until the operator writes it
// again. Then it restores the object.
func (s *stage) suffers(t *testing.T, admin client.Client, r row, what string, happens func() error) {
	t.Helper()
	began := time.Now().Add(-time.Second)
	if err := happens(); apierrors.IsInvalid(err) {
		return // revisions are immutable
	} else if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	s.poke(t, r)
	bundles := []string{"windows-cas", "user-ca", "registry-cas"} // the operator also reads these from binaryData
	_, isQuiet := quiet()[r.String()]
	if isQuiet || what == "binaryData" && slices.Contains(bundles, r.object.GetName()) {
		pause(t, time.Second)
	} else {
		const named = "somebody to name it, or to write it again"
		err := s.Await(t.Context(), 30*time.Second, named, func(ctx context.Context) (bool, string, error) {
			now := &unstructured.Unstructured{}
			now.SetGroupVersionKind(r.object.GroupVersionKind())
			err := admin.Get(ctx, client.ObjectKeyFromObject(r.object), now)
			if err == nil && (same(now, r.object) || what == "deleted" && now.GetUID() != r.object.GetUID()) {
				return true, "", nil
			}
			told, text, failed := s.names(ctx, r, began)
			return told, text, cmp.Or(failed, client.IgnoreNotFound(err))
		})
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	s.putBack(t, admin, r.object)
	s.poke(t, r)
	err := s.Await(t.Context(), 30*time.Second, "nobody to name it any more",
		func(ctx context.Context) (bool, string, error) {
			told, text, err := s.names(ctx, r, time.Now())
			return !told, text, err
		})
	if err != nil {
		t.Errorf("after %s: %v", what, err)
	}
}

// same reports whether an object has the content of another one.
func same(a, b *unstructured.Unstructured) bool {
	for _, field := range []string{"data", "binaryData", "spec", "rules"} {
		if !equality.Semantic.DeepEqual(a.Object[field], b.Object[field]) {
			return false
		}
	}
	return a.GetKind() == "WindowsMachineConfig" || equality.Semantic.DeepEqual(a.Object["status"], b.Object["status"])
}

// putBack restores an object. Others may write the object at the same time.
func (s *stage) putBack(t *testing.T, admin client.Client, want *unstructured.Unstructured) {
	t.Helper()
	s.await(t, "the object to be restored", func(ctx context.Context) (bool, string, error) {
		err := put(ctx, admin, want)
		if apierrors.IsInvalid(err) {
			return true, "", nil // the operator has written a new object, which is immutable
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
			return false, err.Error(), nil
		}
		return err == nil, "", err
	})
}

// poke makes the operator read the objects that it doesn't watch.
func (s *stage) poke(t *testing.T, r row) {
	t.Helper()
	if r.resource == "windowsmachineconfigs" {
		return
	}
	config := s.config(t)
	must(t, s.Client.Patch(t.Context(), config, merge(fmt.Sprintf(`{"spec":{"rollout":{"maxConcurrentJoins":%d}}}`,
		41-config.Spec.Rollout.MaxConcurrentJoins))))
}

// furnish creates the objects that only some clusters have.
func furnish(t *testing.T, admin client.Client) {
	t.Helper()
	ca := string(newCA(t, "table"))
	configMap := func(namespace, name, key, text string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"namespace": namespace, "name": name}, "data": map[string]any{key: text}}}
	}
	mirrors := func(api, kind, field string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": api, "kind": kind,
			"metadata": map[string]any{"name": strings.ToLower(kind)}, "spec": map[string]any{field: []any{
				map[string]any{"source": "quay.io/" + strings.ToLower(kind), "mirrors": []any{"m.example/x"}}}}}}
	}
	for _, object := range []*unstructured.Unstructured{
		configMap(contract.OperatorNamespace, "windows-cas", "bundle", ca),
		configMap(contract.ConfigNamespace, "user-ca", "ca-bundle.crt", ca),
		configMap(contract.ConfigNamespace, "registry-cas", "m.example", ca),
		configMap(contract.OperatorNamespace, contract.ReleasedConfigMap, "ghost", time.Now().UTC().Format(time.RFC3339)),
		mirrors("config.openshift.io/v1", "ImageDigestMirrorSet", "imageDigestMirrors"),
		mirrors("config.openshift.io/v1", "ImageTagMirrorSet", "imageTagMirrors"),
		mirrors("operator.openshift.io/v1alpha1", "ImageContentSourcePolicy", "repositoryDigestMirrors"),
	} {
		must(t, admin.Create(t.Context(), object))
	}
	for _, patch := range []struct{ kind, body string }{
		{"Proxy", `{"spec":{"httpProxy":"http://proxy.lab.example:3128","trustedCA":{"name":"user-ca"}}}`},
		{"Image", `{"spec":{"additionalTrustedCA":{"name":"registry-cas"}}}`},
	} {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "config.openshift.io/v1", "kind": patch.kind,
			"metadata": map[string]any{"name": "cluster"}}}
		must(t, admin.Patch(t.Context(), o, merge(patch.body)))
	}
}
