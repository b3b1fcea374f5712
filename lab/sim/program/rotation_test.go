package program

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/testr"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/util/keyutil"

	"github.com/windows-nodes/wmco/lab/sim"
)

// signingCA signs certificates. The test chooses their lifetime.
type signingCA struct {
	key  crypto.Signer
	root *x509.Certificate
}

func newCA(t *testing.T) signingCA {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return signingCA{key: key, root: &x509.Certificate{SerialNumber: big.NewInt(1),
		Subject: pkix.Name{CommonName: "ca"}}}
}

func (a signingCA) sign(t *testing.T, template *x509.Certificate, public crypto.PublicKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, a.root, public, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// serve approves and signs every certificate request. It returns the counter of the requests.
func (a signingCA) serve(ctx context.Context, t *testing.T, client *fake.Clientset,
	lifetime time.Duration) *atomic.Int64 {
	t.Helper()
	requests := client.CertificatesV1().CertificateSigningRequests()
	events, err := requests.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.Stop)
	var signed atomic.Int64
	go func() {
		for event := range events.ResultChan() {
			request, ok := event.Object.(*certificatesv1.CertificateSigningRequest)
			if !ok || event.Type != watch.Added {
				continue
			}
			block, _ := pem.Decode(request.Spec.Request)
			parsed, err := x509.ParseCertificateRequest(block.Bytes)
			if err != nil {
				t.Error(err)
				return
			}
			request = request.DeepCopy()
			request.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{
				{Type: certificatesv1.CertificateApproved, Status: corev1.ConditionTrue},
			}
			request.Status.Certificate = a.sign(t, &x509.Certificate{
				SerialNumber: big.NewInt(signed.Add(1)), Subject: parsed.Subject, DNSNames: parsed.DNSNames,
				IPAddresses: parsed.IPAddresses,
				NotBefore:   time.Now(), NotAfter: time.Now().Add(lifetime),
			}, parsed.PublicKey)
			if _, err := requests.UpdateStatus(ctx, request, metav1.UpdateOptions{}); err != nil && ctx.Err() == nil {
				t.Error(err)
			}
		}
	}()
	return &signed
}

func TestCertificatesAreReplacedBeforeTheyExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m, err := sim.New(sim.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		if err := m.Host().Files.MkdirAll(`C:\pki`, 0); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		client := fake.NewClientset()
		nameRequests(client)
		ca := newCA(t)
		const lifetime = time.Hour
		signed := ca.serve(ctx, t, client, lifetime)
		var replaced atomic.Int64
		k := &kubelet{
			Process: &sim.Process{Host: m.Host(), Machine: m}, flags: kubeletFlags{certDir: `C:\pki`}, node: "rotates",
			ip: netip.MustParseAddr("127.0.0.1"), server: &access{client: client}, log: testr.New(t),
		}
		k.identity = &pair{files: m.Host().Files, path: `C:\pki` + clientPair, replaced: func() { replaced.Add(1) }}
		done := make(chan error, 1)
		go func() { done <- k.keepCertificate(ctx, k.clientCertificate()) }()
		seen := map[string]bool{}
		ticker := time.NewTicker(10 * time.Second)
		defer ticker.Stop()
		for deadline := time.Now().Add(6 * lifetime); len(seen) < 3; {
			<-ticker.C
			if time.Now().After(deadline) {
				t.Fatalf("the servers saw %d certificates", len(seen))
			}
			current := k.identity.get()
			if current == nil {
				continue
			}
			seen[current.Leaf.SerialNumber.String()] = true
			if time.Now().After(current.Leaf.NotAfter) {
				t.Error("the certificate in use has expired")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if signed.Load() > 4 || replaced.Load() < 3 {
			t.Errorf("%d certificates were signed, but %d were stored", signed.Load(), replaced.Load())
		}
	})
}

func TestACertificateThatLacksANameIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	ca := newCA(t)
	keyPEM, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		t.Fatal(err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	tests := map[string]struct {
		names     []string
		addresses []net.IP
		replaced  bool
	}{
		"all names are there": {names: []string{"node", "other"}, addresses: []net.IP{net.IPv4(10, 0, 0, 1)}},
		"the name is missing": {names: []string{"other"}, addresses: []net.IP{net.IPv4(10, 0, 0, 1)},
			replaced: true},
		"another address was given": {names: []string{"node"}, addresses: []net.IP{net.IPv4(10, 0, 0, 2)},
			replaced: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			chain := ca.sign(t, &x509.Certificate{
				SerialNumber: big.NewInt(1), DNSNames: test.names, IPAddresses: test.addresses, NotBefore: time.Now(),
				NotAfter: time.Now().Add(time.Hour),
			}, key.(crypto.Signer).Public())
			parsed, err := parsePair(chain, keyPEM)
			if err != nil {
				t.Fatal(err)
			}
			k := &kubelet{Process: &sim.Process{Host: m.Host()}}
			w := managedCertificate{store: &pair{current: parsed}, names: []string{"node"},
				addresses: []net.IP{netip.MustParseAddr("10.0.0.1").AsSlice()}}
			if got := k.untilRotation(w) <= 0; got != test.replaced {
				t.Errorf("replaced is %v, want %v", got, test.replaced)
			}
		})
	}
}
