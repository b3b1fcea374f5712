package csr

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"net"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const hostUID = "0b0c7a1e"

// hostFirst returns the first request of a host that joins by itself.
func hostFirst(t *testing.T, name string) *certificatesv1.CertificateSigningRequest {
	t.Helper()
	csr := kubeletClient(t, name, nodeName)
	csr.Spec.Request = requestText(t, contract.HostUserPrefix+hostUID, contract.HostGroup, nil)
	csr.Spec.SignerName = certificatesv1.KubeAPIServerClientSignerName
	csr.Spec.ExpirationSeconds = new(int32(14 * 24 * 3600))
	return csr
}

// Kubernetes deletes an approved request after an hour, and an operator that restarts forgets it. But the token of a
// join command is valid for a day. So the key must be stored in the instance.
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
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil || host.Status.HostKey == "" {
		t.Fatalf("the key is not recorded: %v", err)
	}
	// A new operator starts, and the approved request is deleted.
	host.ResourceVersion = ""
	w = newWorld(t, host, command, second)
	if got, _ := w.decide(t, second.Name); got != "Denied CSRKeyOfAnother" {
		t.Errorf("another key with the same token: %s", got)
	}
}

// The first key of a Machine's host is recorded in the status of its instance, and is valid as long as the instance
// exists.
func TestA88_TheFirstKeyOfAMachineWins(t *testing.T) {
	t.Parallel()
	first, firstID := machineFirst(t, "first", machineAddress)
	second, _ := machineFirst(t, "second", machineAddress)
	w, host := newMachineWorld(t, first, second)
	if got, _ := w.decide(t, first.Name); got != "Approved HostApproved" {
		t.Fatalf("the first request: %s", got)
	}
	if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(host), host); err != nil ||
		policy.HostID(host) != firstID {
		t.Fatalf("the key is not recorded: %s, %v", host.Status.HostKey, err)
	}
	if got, _ := w.decide(t, second.Name); got != "Denied CSRKeyOfAnother" {
		t.Errorf("another key for this Machine: %s", got)
	}
	// If two requests are decided at the same time, neither the cache nor the decision contains the first key.
	claim, _ := policy.ClaimOf(second)
	was := policy.CSRInstanceOf(host)
	if err := w.bindKey(t.Context(), claim, &was); err == nil {
		t.Error("another key was recorded")
	}
}

// Another host, which a user listed, claims the Machine's address or had this address before.
func TestA88_AnotherHostDoesNotKeepAMachineFromJoining(t *testing.T) {
	t.Parallel()
	other := instance("other", "other", "other.example", v1alpha1.PhaseReady)
	other.Status.Host = &v1alpha1.HostInfo{NodeIP: machineAddress}
	first, _ := machineFirst(t, "first", machineAddress)
	w, _ := newMachineWorld(t, first, other)
	if got, _ := w.decide(t, first.Name); got != "Approved HostApproved" {
		t.Errorf("the first request: %s", got)
	}
}

const machineAddress = "10.0.0.7"

// newMachineWorld returns a world with the given objects and the instance of a new Machine, whose host has requested no
// certificate yet.
func newMachineWorld(t *testing.T, objects ...client.Object) (world, *v1alpha1.WindowsInstance) {
	t.Helper()
	host := instance("win-a", "", machineAddress, v1alpha1.PhaseConnecting)
	host.UID, host.Spec.ByItself = hostUID, &v1alpha1.ByItself{}
	host.Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine, Name: "win-a", UID: "machine"}
	token := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: contract.MachinesJoinSecret},
		Data: map[string][]byte{contract.JoinCredentialField: []byte("JTI=old " + tokenID)}}
	w := newWorld(t, append(objects, host, token)...)
	w.options.Machine = func(_ context.Context, source *v1alpha1.Source) (*policy.CSRMachine, error) {
		if source.UID != "machine" {
			return nil, nil
		}
		return &policy.CSRMachine{}, nil
	}
	return w, host
}

// machineFirst returns the first request of a Machine's host, and the host's id.
func machineFirst(t *testing.T, name, address string) (csr *certificatesv1.CertificateSigningRequest, id string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	id = contract.Digest(der)
	csr = hostFirst(t, name)
	csr.Spec.Request, err = cert.MakeCSR(key, &pkix.Name{CommonName: contract.HostUserPrefix + id,
		Organization: []string{contract.HostGroup}}, nil, []net.IP{net.ParseIP(address)})
	if err != nil {
		t.Fatal(err)
	}
	return csr, id
}
