package csr

import (
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

const hostUID = "0b0c7a1e"

// hostFirst is the first request of a host that joins by itself.
func hostFirst(t *testing.T, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := kubeletClient(t, name, nodeName)
	csr.Spec.Request = requestText(t, contract.HostUserPrefix+hostUID, contract.HostGroup, nil)
	csr.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	csr.Spec.ExpirationSeconds = new(int32(14 * 24 * 3600))
	return csr
}

// Kubernetes deletes an approved request after an hour, and an operator that was restarted remembers nothing. The token
// of a command lives for a day.
func TestA85_TheKeyOfACommandIsRememberedAsLongAsItsToken(t *testing.T) {
	t.Parallel()
	host := instance("win-a", "", "win-a", v1alpha1.PhaseConnecting)
	host.UID, host.Spec.ByItself = hostUID, &v1alpha1.ByItself{}
	command := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace,
		Name: contract.JoinSecretPrefix + hostUID},
		Data: map[string][]byte{contract.JoinCredentialField: []byte(tokenID)}}
	first, second := hostFirst(t, "first"), hostFirst(t, "second")
	w := newWorld(t, host, command, first)
	if got, _ := w.decide(t, first.Name); got != "Approved HostApproved" {
		t.Fatalf("the first request: %s", got)
	}
	key := client.ObjectKeyFromObject(command)
	if err := w.client.Get(t.Context(), key, command); err != nil || len(command.Data[contract.JoinKeyField]) == 0 {
		t.Fatalf("the key is not recorded: %v", err)
	}
	// Another operator, without the approved request.
	command.ResourceVersion = ""
	w = newWorld(t, host, command, second)
	if got, _ := w.decide(t, second.Name); got != "Denied CSRKeyOfAnother" {
		t.Errorf("another key with the same token: %s", got)
	}
}
