package verbs_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// etcd was restored to a state before a rotation of the signers. kubelet's certificate is valid for days, but the API
// server refuses it.
func TestAKubeletWhoseCertificateIsRefusedGetsAnotherWhenItJoinsAgain(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusUnauthorized)
	}))
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	defer server.Close()
	r := newRig(t, sim.Options{})
	join(t, r)
	awaitReconciled(t, r)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: r.Host().System.Now().Add(7 * day),
		Subject: pkix.Name{CommonName: contract.KubeletUserPrefix + "win-a"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	refused := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	const current = contract.DirKubeletPKI + `\kubelet-client-current.pem`
	write(t, r, current, refused, winos.AccessAdministrators)
	write(t, r, contract.PathKubeconfig, kubeconfigOf(server.URL,
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))), winos.AccessAdministrators)
	kubelets := r.kubelets.Load()
	join(t, r)
	eventually(t, "another certificate", func() bool { return read(t, r, current) != refused })
	awaitReconciled(t, r)
	join(t, r)
	if n := r.kubelets.Load() - kubelets; n != 1 {
		t.Errorf("kubelet was started %d times, want once", n)
	}
}

// A bootstrap credential is valid for one key. If the operator repeats the bootstrap with the same credential,
// kubelet must keep its key: a certificate for its request may already be approved.
func TestAKubeletThatWaitsForItsCertificateKeepsItsRequestWithTheSameCredential(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	r.unapproved.Store(true)
	join(t, r)
	eventually(t, "a request", func() bool {
		asked, err := winos.Exists(r.Host().Files, pathRequestedKey)
		return err == nil && asked
	})
	asked, kubelets, again := read(t, r, pathRequestedKey), r.kubelets.Load(), bootstrapRequest()
	again.Register = true
	must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, again))
	if n := r.kubelets.Load() - kubelets; n != 0 { // a kubelet that renews its certificate has the key only in memory
		t.Errorf("kubelet was restarted %d times", n)
	}
	if got := read(t, r, pathRequestedKey); got != asked {
		t.Errorf("kubelet requests a certificate for key %q, before for key %q", got, asked)
	}
}

// The API server knows the credential of kubelet's first request. A request with an invalid credential, for example
// of an instance that was removed by force, stays pending for a day. kubelet repeats this request as long as it has
// the same key. So a join with another credential must replace the key.
func TestAKubeletThatWaitsForItsCertificateAsksAnewWhenItsHostJoinsAgain(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{})
	r.unapproved.Store(true)
	join(t, r)
	asked := ""
	key := func() string {
		if there, err := winos.Exists(r.Host().Files, pathRequestedKey); err != nil || !there {
			return asked
		}
		return read(t, r, pathRequestedKey)
	}
	eventually(t, "a request", func() bool { return key() != asked })
	asked = key()
	kubelets, again := r.kubelets.Load(), bootstrapRequest()
	again.BootstrapKubeconfig = []byte("another secret")
	must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, again))
	eventually(t, "another request", func() bool { return key() != asked })
	if n := r.kubelets.Load() - kubelets; n != 1 {
		t.Errorf("kubelet was started %d times, want once", n)
	}
	r.unapproved.Store(false)
	must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest()))
	eventually(t, "a certificate", func() bool {
		own, err := winos.Exists(r.Host().Files, contract.PathKubeconfig)
		return err == nil && own
	})
	// kubelet has its certificate, but could not remove this file. The join must not restart kubelet because of the
	// file.
	write(t, r, pathRequestedKey, "left", winos.AccessAdministrators)
	kubelets = r.kubelets.Load()
	must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, bootstrapRequest()))
	if n := r.kubelets.Load() - kubelets; n != 0 {
		t.Errorf("a kubelet with a certificate was restarted %d times", n)
	}
}
