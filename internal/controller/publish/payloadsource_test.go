package publish

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

func (w *world) source(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	c := &corev1.ConfigMap{}
	err := w.client.Get(t.Context(), client.ObjectKey{Namespace: contract.OperatorNamespace,
		Name: contract.PayloadSourceConfigMap}, c)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mayRead reports whether daemons may list a ConfigMap.
func mayRead(role rbacv1.Role, name string) bool {
	return slices.ContainsFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
		return slices.Contains(r.Resources, "configmaps") && slices.Contains(r.ResourceNames, name) &&
			slices.Contains(r.Verbs, "list")
	})
}

func TestDaemonsAreToldWhereThePayloadIs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publisher.PayloadSource = PayloadSource{URLs: []string{"https://10.0.0.1:9183", "https://172.30.0.9:9183"},
		CA: []byte(pem)}
	w.publish(t)
	c := w.source(t)
	if c == nil || c.Data[contract.PayloadSourceURLs] != "https://10.0.0.1:9183\nhttps://172.30.0.9:9183" ||
		c.Data[contract.PayloadSourceCA] != pem {
		t.Fatalf("daemons get %+v", c)
	}
	if !mayRead(w.role(t), c.Name) {
		t.Errorf("daemons may not read it: %v", w.role(t).Rules)
	}
	*w.writes = nil
	w.publish(t)
	if len(*w.writes) > 0 {
		t.Errorf("unneeded writes: %v", *w.writes)
	}
	for name, harm := range map[string]func(){
		"another certificate": func() { w.publisher.PayloadSource.CA = []byte(pem + pem) },
		"foreign content": func() {
			c := w.source(t)
			c.Data[contract.PayloadSourceURLs], c.Labels = "https://evil.example.com", nil
			if err := w.client.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		},
		"nothing": func() {
			if err := w.client.Delete(t.Context(), w.source(t)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		harm()
		w.publish(t)
		if c = w.source(t); c == nil || c.Data[contract.PayloadSourceCA] != string(w.publisher.PayloadSource.CA) ||
			c.Data[contract.PayloadSourceURLs] != "https://10.0.0.1:9183\nhttps://172.30.0.9:9183" {
			t.Errorf("%s stays: %+v", name, c)
		}
	}
	w.publisher.PayloadSource = PayloadSource{}
	w.publish(t)
	if c = w.source(t); c == nil || c.Data[contract.PayloadSourceURLs] != "" || c.Data[contract.PayloadSourceCA] != "" {
		t.Error("without a payload server, daemons are told an address")
	}
}

func TestDaemonsAreToldOfThePayloadServerEvenWhileFactsAreMissing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.facts.answer(func(s *factsStub) { s.err = contract.NewProblem(contract.ReasonClusterFactsIncomplete, "away") })
	w.publisher.PayloadSource = PayloadSource{URLs: []string{"https://10.0.0.1:9183"}, CA: []byte(pem)}
	w.publish(t)
	if w.source(t) == nil {
		t.Error("daemons are not told the address")
	}
}
