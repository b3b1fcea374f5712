package credential

import (
	"encoding/base64"
	"testing"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Whoever clears the finalizer of an instance by hand leaves no Secret of its behind.
func TestTheSecretOfAJoinGoesWithItsInstance(t *testing.T) {
	t.Parallel()
	clients := fake.NewClientset()
	clients.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		claims := base64.RawURLEncoding.EncodeToString([]byte(`{"jti":"id"}`))
		return true, &authenticationv1.TokenRequest{
			Status: authenticationv1.TokenRequestStatus{Token: "e30." + claims + ".e30"}}, nil
	})
	tokens := BootstrapToken{Client: clients, Namespace: namespace}
	instance := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "host", UID: "u"}}
	if _, err := tokens.BootstrapToken(t.Context(), instance); err != nil {
		t.Fatal(err)
	}
	secret, err := clients.CoreV1().Secrets(namespace).Get(t.Context(), contract.BootstrapSecretPrefix+"u",
		metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]metav1.OwnerReference{{APIVersion: "windowsmachineconfig.openshift.io/v1alpha1",
		Kind: "WindowsInstance", Name: "host", UID: "u"}}, secret.OwnerReferences); diff != "" {
		t.Error(diff)
	}
}
