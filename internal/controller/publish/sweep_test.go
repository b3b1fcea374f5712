package publish

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

func request() reconcile.Request { return reconcile.Request{} }

// old publishes two revisions one after the other, and returns the first one.
func (w *world) old(t *testing.T) blueprint.Desired {
	t.Helper()
	w.publish(t)
	first := w.current(t)
	w.facts.answer(func(s *factsStub) { s.facts.KubeletCA = pem + pem })
	w.publish(t)
	return first
}

func node(name, version, desired string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
		contract.RevisionAnnotation: version, contract.DesiredRevisionAnnotation: desired,
	}}}
}

func TestAnUnusedRevisionGoesAfterItsGrace(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	name := w.old(t).ConfigMapName()
	*w.writes = nil
	if again := w.sweep(t); again != DefaultGrace {
		t.Errorf("the sweep is repeated after %s", again)
	}
	*w.clock = w.clock.Add(DefaultGrace / 2)
	if again := w.sweep(t); again != DefaultGrace/2 {
		t.Errorf("the sweep is repeated after %s", again)
	}
	if len(*w.writes) > 0 {
		t.Errorf("writes during the grace period: %v", *w.writes)
	}
	*w.clock = w.clock.Add(DefaultGrace / 2)
	w.sweep(t)
	if _, ok := w.manifests(t)[name]; ok {
		t.Error("the old revision still exists")
	}
	if _, ok := w.manifests(t)[w.current(t).ConfigMapName()]; !ok {
		t.Error("the current revision was deleted")
	}
	w.publish(t)
	if names := w.role(t).Rules[0].ResourceNames; len(names) != 1 || names[0] == name {
		t.Errorf("the role names %v", names)
	}
}

func TestAVersionInUseStays(t *testing.T) {
	t.Parallel()
	for name, user := range map[string]func(version string) client.Object{
		"because a node runs it":                  func(v string) client.Object { return node("win-1", v, "other") },
		"because it is a node's desired revision": func(v string) client.Object { return node("win-1", "other", v) },
		"because a host joins at it": func(
			v string) client.Object {
			return instance(v1alpha1.WindowsInstanceStatus{DesiredRevision: v})
		},
		"because a node fetches its payload": func(v string) client.Object {
			n := node("win-1", "other", "other")
			n.Annotations[contract.StageAnnotation] = v
			return n
		},
		"because a node may go back to it": func(v string) client.Object {
			return instance(v1alpha1.WindowsInstanceStatus{Revision: "other", DesiredRevision: "other", HeldRevision: v,
				Activity: &v1alpha1.Activity{Kind: v1alpha1.ActivityUpgrade, Revision: "other",
					Step: v1alpha1.StepVerifying, Since: metav1.Now(),
				}})
		},
		"because a host's node has gone lost": func(
			v string) client.Object {
			return instance(v1alpha1.WindowsInstanceStatus{Revision: v})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			first := w.old(t)
			w.sweep(t) // no node uses the first revision yet
			if err := w.client.Create(t.Context(), user(first.Revision)); err != nil {
				t.Fatal(err)
			}
			if i, ok := user(first.Revision).(*v1alpha1.WindowsInstance); ok {
				created := &v1alpha1.WindowsInstance{}
				if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(i), created); err != nil {
					t.Fatal(err)
				}
				created.Status = i.Status
				if err := w.client.Status().Update(t.Context(), created); err != nil {
					t.Fatal(err)
				}
			}
			*w.clock = w.clock.Add(10 * DefaultGrace)
			w.sweep(t)
			if _, ok := w.manifests(t)[first.ConfigMapName()]; !ok {
				t.Fatal("the ConfigMap was deleted")
			}
		})
	}
}

func instance(status v1alpha1.WindowsInstanceStatus) *v1alpha1.WindowsInstance {
	return &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: "win-1"}, Status: status}
}

func TestAForgedRevisionGoesAtOnceEvenWhenInUse(t *testing.T) {
	t.Parallel()
	forged := configMap("windows-services-0.0.9-0123456789",
		func(c *corev1.ConfigMap) { c.Data = map[string]string{"services": "[]", "files": "[]"} })
	w := newWorld(t, forged, node("win-1", "0.0.9-0123456789", "0.0.9-0123456789"))
	w.publish(t)
	if names := w.role(t).Rules[0].ResourceNames; len(names) != 1 {
		t.Errorf("daemons may read it: %v", names)
	}
	w.sweep(t)
	if _, ok := w.manifests(t)[forged.Name]; ok {
		t.Error("the forged revision still exists")
	}
}

func TestOtherConfigMapsAreLeftAlone(t *testing.T) {
	t.Parallel()
	other := configMap("windows-instances", nil)
	elsewhere := configMap("windows-services-0.0.9-0123456789", nil)
	elsewhere.Namespace = "default"
	w := newWorld(t, other, elsewhere)
	w.publish(t)
	w.sweep(t)
	*w.clock = w.clock.Add(2 * DefaultGrace)
	w.sweep(t)
	if got := w.manifests(t); len(got) != 4 {
		t.Errorf("there are %d ConfigMaps", len(got))
	}
}

// The names of another Windows operator's ConfigMaps contain its version, and users may use the same prefix for their
// own objects. These objects must not be touched.
func TestA84_WhatOthersPublishedIsNeitherMarkedNorDeleted(t *testing.T) {
	t.Parallel()
	unlabelled := func(o client.Object) client.Object {
		o.SetLabels(map[string]string{"app": "theirs"})
		return o
	}
	theirs := []client.Object{
		// Even this operator's label proves nothing, because both operators have the same name.
		configMap("windows-services-10.18.0-1a2b3c4", nil),
		unlabelled(configMap("windows-services-10.18.0", nil)),
		unlabelled(configMap("windows-services-backup-0123456789", nil)),
		configMap("windows-ssh-host-keys", nil),
		secret("windows-services-backup", nil), unlabelled(secret("windows-services-backup-0123456789", nil)),
	}
	w := newWorld(t, theirs...)
	before := map[client.Object]string{}
	for _, o := range theirs {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
		before[o] = o.GetResourceVersion()
	}
	w.publish(t)
	for range 2 {
		w.sweep(t)
		*w.clock = w.clock.Add(2 * DefaultGrace)
	}
	for _, o := range theirs {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			t.Error(err)
		} else if o.GetResourceVersion() != before[o] {
			t.Errorf("%T %s was changed: %v", o, o.GetName(), o.GetAnnotations())
		}
	}
}

func TestNothingIsRetiredBeforeSomethingIsPublished(t *testing.T) {
	t.Parallel()
	w := newWorld(t, configMap("windows-services-0.0.9-0123456789", nil))
	w.sweep(t)
	if len(w.manifests(t)) != 1 {
		t.Error("the ConfigMap was deleted")
	}
}

// After a downgrade of the operator, nodes still use a revision of the newer release. This revision contains settings
// that the older release doesn't understand, and must still be kept.
func TestTheRevisionOfANewerReleaseIsKeptWhileInUse(t *testing.T) {
	t.Parallel()
	inside := `{"salt":"` + strings.Repeat("A", 43) + `=","ofTomorrow":true}`
	packed, err := contract.Pack([]byte(inside))
	if err != nil {
		t.Fatal(err)
	}
	data := map[string]string{"services": `[{"name":"kubelet","path":"C:\\k\\kubelet.exe","ofTomorrow":{"a":1}}]`,
		"files": "[]", "ofTomorrow": "[]", contract.KeyConfidential: contract.Digest([]byte(inside))}
	revision := "9.0.0-" + contract.DataDigest(data)[:contract.RevisionDigits]
	newer := configMap(contract.ServicesConfigMapPrefix+revision, func(c *corev1.ConfigMap) { c.Data = data })
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: newer.Name},
		Data: map[string][]byte{contract.ConfidentialField: packed}}
	w := newWorld(t, newer, secret, node("win-1", revision, revision))
	w.publish(t)
	w.sweep(t)
	if _, ok := w.manifests(t)[newer.Name]; !ok {
		t.Error("the ConfigMap was deleted")
	}
	if err = w.client.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{}); err != nil {
		t.Errorf("the Secret was deleted: %v", err)
	}
	for _, rule := range w.role(t).Rules[:2] {
		if !slices.Contains(rule.ResourceNames, newer.Name) {
			t.Errorf("daemons may not read it: %v", rule.ResourceNames)
		}
	}
}
