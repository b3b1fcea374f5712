package publish

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// inside returns the Secrets by name.
func (w *world) inside(t *testing.T) map[string]corev1.Secret {
	t.Helper()
	var list corev1.SecretList
	if err := w.client.List(t.Context(), &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]corev1.Secret{}
	for _, s := range list.Items {
		all[s.Name] = s
	}
	return all
}

// pulls sets the cluster's pull secret.
func (w *world) pulls(text string) {
	w.facts.answer(func(s *factsStub) { s.facts.PullSecret = []byte(text) })
}

func secret(name string, change func(*corev1.Secret)) *corev1.Secret {
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: name,
		Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount}},
		Type: corev1.SecretTypeOpaque}
	if change != nil {
		change(s)
	}
	return s
}

const pullSecret = `{"auths":{"m.example":{"auth":"bWU6aHVudGVyMg=="}}}`

func TestWhatIsNotPublicIsPublishedInASecretBeforeItsManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pulls(pullSecret)
	w.publish(t)
	desired := w.current(t)
	name := "windows-services-" + desired.Revision
	if want := []string{"create ConfigMap windows-payload-source", "create Secret " + name, "create ConfigMap " + name,
		"create Role windows-services-reader", "create Secret windows-services-latest",
		"create Secret windows-services-memory"}; !slices.Equal(*w.writes, want) {
		t.Errorf("writes: %v", *w.writes)
	}
	s, ok := w.inside(t)[name]
	if !ok || s.Immutable == nil || !*s.Immutable || s.Type != corev1.SecretTypeOpaque ||
		s.Labels[contract.ManagedByLabel] != contract.OperatorServiceAccount {
		t.Fatalf("the Secret is %+v", s)
	}
	manifest, err := contract.ManifestFromConfigMap(w.manifests(t)[name].Data)
	if err != nil {
		t.Fatal(err)
	}
	c, err := contract.ParseConfidential(s.Data[contract.ConfidentialField], manifest)
	if err != nil || string(c.PullSecret) != pullSecret || len(c.Salt) != contract.SaltSize {
		t.Errorf("the Secret has %+v, %v", c, err)
	}
	for key, text := range w.manifests(t)[name].Data {
		if strings.Contains(text, "hunter2") || strings.Contains(text, "bWU6aHVudGVyMg") {
			t.Errorf("the ConfigMap has the password in %s", key)
		}
	}
}

func TestASecretIsRestored(t *testing.T) {
	t.Parallel()
	yes := true
	for name, spoil := range map[string]func(t *testing.T, c client.Client, s *corev1.Secret){
		"when it was deleted": func(*testing.T, client.Client, *corev1.Secret) {},
		"when it was replaced by another": func(t *testing.T, c client.Client, s *corev1.Secret) {
			t.Helper()
			put(t, c, secret(s.Name, func(n *corev1.Secret) {
				n.Data, n.Immutable,
					n.Labels = map[string][]byte{"a": {1}}, &yes, s.Labels
			}))
		},
		"when it was replaced by one of another type": func(t *testing.T, c client.Client, s *corev1.Secret) {
			t.Helper()
			put(t, c, secret(s.Name, func(n *corev1.Secret) {
				n.Data, n.Immutable, n.Labels, n.Type = s.Data, &yes, s.Labels, "example.com/odd"
			}))
		},
		"when more was put into it": func(t *testing.T, c client.Client, s *corev1.Secret) {
			t.Helper()
			put(t, c, secret(s.Name, func(n *corev1.Secret) {
				n.Data, n.Immutable, n.Labels = map[string][]byte{"a": {1},
					contract.ConfidentialField: s.Data[contract.ConfidentialField]}, &yes, s.Labels
			}))
		},
		"when only the mark of immutability is gone": func(t *testing.T, c client.Client, s *corev1.Secret) {
			t.Helper()
			put(t, c, secret(s.Name, func(n *corev1.Secret) { n.Data, n.Labels = s.Data, s.Labels }))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.pulls(pullSecret)
			w.publish(t)
			desired := w.current(t)
			want := w.inside(t)[desired.SecretName()]
			if err := w.client.Delete(t.Context(), want.DeepCopy()); err != nil {
				t.Fatal(err)
			}
			spoil(t, w.client, &want)
			w.publish(t)
			got := w.inside(t)[desired.SecretName()]
			if !bytes.Equal(got.Data[contract.ConfidentialField], want.Data[contract.ConfidentialField]) ||
				len(got.Data) != 1 || got.Immutable == nil || !*got.Immutable ||
				got.Type != want.Type {
				t.Errorf("the Secret is %+v", got)
			}
			*w.writes = nil
			if w.publish(t); len(*w.writes) > 0 || w.current(t).Revision != desired.Revision {
				t.Errorf("then: %v", *w.writes)
			}
		})
	}
}

func put(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := c.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestAnotherOperatorRendersTheSameVersion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.pulls(pullSecret)
	w.publish(t)
	first := w.current(t)
	w.pulls(`{"auths":{}}`)
	w.publish(t)
	second := w.current(t)
	if first.Revision == second.Revision || !bytes.Equal(first.Confidential.Salt, second.Confidential.Salt) {
		t.Fatalf("versions %s and %s", first.Revision, second.Revision)
	}
	restart := func(status v1alpha1.WindowsMachineConfigStatus) blueprint.Desired {
		t.Helper()
		w.publisher.source = &Source{}
		before, err := w.publisher.previous(t.Context(), &v1alpha1.WindowsMachineConfig{Status: status})
		if err != nil {
			t.Fatal(err)
		}
		return before
	}
	for _, version := range []string{first.Revision, second.Revision} {
		before := restart(v1alpha1.WindowsMachineConfigStatus{
			DesiredRevision: version, Kubelet: v1alpha1.KubeletStatus{
				AcceptedConfig: &runtime.RawExtension{Raw: []byte(`{"maxPods":9}`)}},
		})
		if before.Revision != version || !bytes.Equal(before.Confidential.Salt, first.Confidential.Salt) ||
			string(before.KubeletFragment) != `{"maxPods":9}` {
			t.Errorf("with the status of revision %s, the operator renders %s", version, before.Revision)
		}
	}
	// While no operator was running, invalid data was written to the cluster. It must not replace the published data.
	w.pulls("junk")
	restart(v1alpha1.WindowsMachineConfigStatus{})
	w.publish(t)
	if got := w.current(t); len(got.Confidential.PullSecret) == 0 || len(got.Rejected) != 1 {
		t.Errorf("the pull secret is %q, rejected %v", got.Confidential.PullSecret, got.Rejected)
	}
	// Without the Secret, the operator creates a new salt, and this leads to a new revision.
	for _, s := range w.inside(t) {
		if err := w.client.Delete(t.Context(), &s); err != nil {
			t.Fatal(err)
		}
	}
	w.pulls(pullSecret)
	restart(v1alpha1.WindowsMachineConfigStatus{})
	w.publish(t)
	if got := w.current(t); got.Revision == first.Revision || len(got.Confidential.Salt) != contract.SaltSize {
		t.Errorf("revision %s, salt of %d bytes", got.Revision, len(got.Confidential.Salt))
	}
}

func TestDaemonsReadOnlyWhatBelongsToAManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, secret("windows-services-0.0.9-0123456789", nil), secret("windows-services-reader", nil),
		secret("cloud-private-key", nil))
	old := w.old(t)
	forged := secret(
		old.SecretName(), func(s *corev1.Secret) { s.Data = map[string][]byte{contract.ConfidentialField: []byte("junk")} })
	if err := errors.Join(w.client.Delete(t.Context(), secret(old.SecretName(), nil)), w.client.Create(t.Context(), forged)); err != nil {
		t.Fatal(err)
	}
	w.publish(t)
	current := w.current(t)
	rules := w.role(t).Rules
	if len(rules) != 4 || len(rules[0].ResourceNames) != 2 || !slices.Equal(rules[1].ResourceNames, []string{current.SecretName()}) {
		t.Errorf("the role has %v", rules)
	}
	w.sweep(t)
	if _, ok := w.inside(t)[forged.Name]; ok {
		t.Error("the forged Secret still exists")
	}
	if _, ok := w.inside(t)["cloud-private-key"]; !ok {
		t.Error("another Secret was deleted")
	}
}

func TestASecretGoesWithItsManifest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	old := w.old(t)
	fresh := secret("windows-services-9.9.9-0123456789", func(s *corev1.Secret) { s.CreationTimestamp = metav1.NewTime(*w.clock) })
	put(t, w.client, fresh)
	w.sweep(t)
	if _, ok := w.inside(t)[old.SecretName()]; !ok {
		t.Error("the Secret was deleted before its manifest")
	}
	if _, ok := w.inside(t)[fresh.Name]; !ok {
		t.Error("the Secret of a manifest that is about to be published was deleted")
	}
	*w.clock = w.clock.Add(DefaultGrace)
	w.sweep(t)
	for name := range w.inside(t) {
		if name != w.current(t).SecretName() && name != contract.LatestSecret &&
			name != contract.MemorySecret {
			t.Errorf("%s still exists", name)
		}
	}
	w.publish(t)
	for _, rule := range w.role(t).Rules {
		if len(rule.ResourceNames) != 1 {
			t.Errorf("the role has %v", rule)
		}
	}
}

func TestTheClusterCanInjectTheProxysCAs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.facts.answer(func(s *factsStub) { s.facts.InjectsCA = true })
	w.publish(t)
	c, ok := w.manifests(t)[contract.TrustedCAConfigMap]
	if !ok || c.Labels[contract.InjectTrustedCALabel] != "true" {
		t.Fatalf("the ConfigMap is %+v", c)
	}
	c.Labels, c.Data = map[string]string{"theirs": "yes"}, map[string]string{contract.CABundleField: "bundle"}
	if err := w.client.Update(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
	w.publish(t)
	if c = w.manifests(t)[contract.TrustedCAConfigMap]; c.Labels[contract.InjectTrustedCALabel] != "true" || c.Labels["theirs"] != "yes" || c.Data[contract.CABundleField] != "bundle" {
		t.Errorf("the ConfigMap is %+v", c)
	}
	*w.writes = nil
	if w.publish(t); len(*w.writes) > 0 {
		t.Errorf("writes: %v", *w.writes)
	}
}

func TestTheSourceTellsOfWhatIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	changed := w.publisher.source.Changed()
	w.publish(t)
	<-changed
	w.facts.answer(func(s *factsStub) { s.facts.Proxy = blueprint.Proxy{HTTP: "junk"} })
	w.publish(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	select {
	case <-changed:
	case <-ctx.Done():
		t.Error("the source did not report the change")
	}
	if desired, _, ok := w.publisher.source.Published(); !ok || len(desired.Rejected) != 1 || desired.Rejected[0].Reason != contract.ReasonProxyInvalid {
		t.Errorf("the published state has the rejected settings %+v", desired.Rejected)
	}
}
