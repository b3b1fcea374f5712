package openshift

import (
	"strings"
	"testing"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/internal/contract"
)

// The user's CA bundle becomes invalid or is deleted. The injected bundle must keep the system's certificates, because
// nodes use the injected bundle.
func TestTheInjectedBundleStaysWhileTheUsersIsGarbage(t *testing.T) {
	scheme, err := newScheme()
	if err != nil {
		t.Fatal(err)
	}
	system, err := systemBundle()
	if err != nil {
		t.Fatal(err)
	}
	user, err := systemBundle()
	if err != nil {
		t.Fatal(err)
	}
	given := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace, Name: "user-ca"},
		Data: map[string]string{contract.CABundleField: user}}
	asking := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ours", Name: "trusted-ca",
		Labels: map[string]string{contract.InjectTrustedCALabel: "true"}}}
	proxy := &configv1.Proxy{ObjectMeta: metav1.ObjectMeta{Name: clusterName},
		Spec: configv1.ProxySpec{TrustedCA: configv1.ConfigMapNameReference{Name: given.Name}}}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(given, asking, proxy).Build()
	follow := func() string {
		t.Helper()
		if err := followOnce(t.Context(), c, system); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(asking), asking); err != nil {
			t.Fatal(err)
		}
		return asking.Data[contract.CABundleField]
	}
	before := follow()
	if !strings.Contains(before, user) || !strings.Contains(before, system) {
		t.Fatal("a valid bundle was not injected")
	}
	given.Data[contract.CABundleField] = "garbage: ["
	if err := c.Update(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	if follow() != before {
		t.Error("an invalid bundle was injected")
	}
	if err := c.Delete(t.Context(), given); err != nil {
		t.Fatal(err)
	}
	if follow() != before {
		t.Error("after the user's bundle was deleted, the injected bundle changed")
	}
}
