package credential

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// If a user removes the finalizer of an instance by hand, its Secret must be deleted as well.
func TestTheSecretOfAJoinGoesWithItsInstance(t *testing.T) {
	t.Parallel()
	clients := fake.NewClientset()
	clients.PrependReactor("create", "serviceaccounts", func(clienttesting.Action) (bool, runtime.Object, error) {
		claims := base64.RawURLEncoding.EncodeToString([]byte(`{"jti":"id"}`))
		return true, &authenticationv1.TokenRequest{
			Status: authenticationv1.TokenRequestStatus{Token: "e30." + claims + ".e30"}}, nil
	})
	tokens := Issuer{Client: clients, Namespace: namespace}
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

// The user data keeps its token until half of the token's time is over. A Machine may still boot with the previous
// token.
func TestA88_TheTokenOfMachinesIsReplacedInTime(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	clients, made := fake.NewClientset(), 0
	clients.PrependReactor("create", "serviceaccounts", func(action clienttesting.Action) (bool, runtime.Object, error) {
		made++
		request := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenRequest) //nolint:forcetypeassert // it creates tokens
		if bound := request.Spec.BoundObjectRef; bound == nil || bound.Name != contract.MachinesJoinSecret {
			t.Errorf("the token is bound to %v", bound)
		}
		claims := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"jti":"%d"}`, made))
		lifetime := time.Duration(*request.Spec.ExpirationSeconds) * time.Second
		return true, &authenticationv1.TokenRequest{Status: authenticationv1.TokenRequestStatus{
			Token: "e30." + claims + ".e30", ExpirationTimestamp: metav1.NewTime(now.Add(lifetime))}}, nil
	})
	// The API server converts stringData to data.
	clients.PrependReactor("patch", "secrets", func(action clienttesting.Action) (bool, runtime.Object, error) {
		var patch corev1.Secret
		if err := json.Unmarshal(action.(clienttesting.PatchAction).GetPatch(), &patch); err != nil { //nolint:forcetypeassert // it is a patch
			return true, nil, err
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.MachinesJoinSecret},
			Data: map[string][]byte{}}
		for name, value := range patch.StringData {
			secret.Data[name] = []byte(value)
		}
		return true, secret, clients.Tracker().Update(corev1.SchemeGroupVersion.WithResource("secrets"), secret, namespace)
	})
	issuer := Issuer{Client: clients, Namespace: namespace}
	for _, step := range []struct {
		after time.Duration
		made  int
		ids   string
	}{{0, 1, "JTI=1"}, {11 * time.Hour, 1, "JTI=1"}, {2 * time.Hour, 2, "JTI=1 JTI=2"}, {13 * time.Hour, 3, "JTI=2 JTI=3"}} {
		now = now.Add(step.after)
		token, err := issuer.MachinesToken(t.Context(), now)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := clients.CoreV1().Secrets(namespace).Get(t.Context(), contract.MachinesJoinSecret, metav1.GetOptions{})
		if err != nil || made != step.made || string(secret.Data[contract.JoinCredentialField]) != step.ids ||
			string(secret.Data[contract.JoinTokenField]) != token {
			t.Errorf("after %s: %d tokens, ids %s, %v; want %d, %s", step.after, made,
				secret.Data[contract.JoinCredentialField], err, step.made, step.ids)
		}
	}
}
