package apiclient_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"math/big"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

const life = 14 * 24 * time.Hour

func files(t *testing.T) (winos.Files, func()) {
	t.Helper()
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err = m.Host().Files.MkdirAll(contract.DirDaemonCerts, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	return m.Host().Files, func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// sign returns a certificate for a request, valid from now on.
func sign(t *testing.T, request []byte) []byte {
	t.Helper()
	return signAt(t, request, time.Now(), life)
}

func signAt(t *testing.T, request []byte, now time.Time, lives time.Duration) []byte {
	t.Helper()
	block, rest := pem.Decode(request)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(rest) > 0 {
		t.Fatalf("not exactly one request: %q", request)
	}
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if err = csr.CheckSignature(); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: csr.Subject, NotBefore: now, NotAfter: now.Add(lives),
	}, ca, csr.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// enroll creates the key of a node's daemon, and stores its first certificate.
func enroll(t *testing.T, f winos.Files, node string) {
	t.Helper()
	key, err := apiclient.Daemon(f, "win-a").PendingKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := apiclient.Daemon(nil, node).NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	if err = apiclient.Daemon(f, node).StoreCertificate(sign(t, request)); err != nil {
		t.Fatal(err)
	}
}

func TestTheRequestIsThatOfADaemon(t *testing.T) {
	t.Parallel()
	f, done := files(t)
	defer done()
	key, err := apiclient.Daemon(f, "win-a").PendingKey()
	if err != nil {
		t.Fatal(err)
	}
	again, err := apiclient.Daemon(f, "win-a").PendingKey()
	if err != nil || !again.Equal(key) {
		t.Errorf("a second request has another key, %v", err)
	}
	content, err := apiclient.Daemon(nil, "win-a").NewRequest(key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(content)
	csr, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if csr.Subject.String() != "CN=system:wicd-node:win-a,O=system:wicd-nodes" ||
		len(csr.DNSNames)+len(csr.IPAddresses)+len(csr.URIs)+len(csr.EmailAddresses) > 0 {
		t.Errorf("the request is for %s", csr.Subject)
	}
	if _, err = apiclient.Daemon(nil, "").NewRequest(key); err == nil {
		t.Error("a request without a node is accepted")
	}
}

func TestKeysAreForAdministratorsOnly(t *testing.T) {
	t.Parallel()
	f, done := files(t)
	defer done()
	if _, err := apiclient.Daemon(f, "win-a").PendingKey(); err != nil {
		t.Fatal(err)
	}
	check := func() {
		entries, err := f.List(contract.DirDaemonCerts)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%v, %v", entries, err)
		}
		if entries[0].Access != winos.AccessAdministrators {
			t.Errorf("users may read %s", entries[0].Name)
		}
	}
	check()
	enroll(t, f, "win-a")
	check() // the pending key is deleted, and the pair is stored
}

func TestOnlyACertificateForTheOwnKeyAndNameIsStored(t *testing.T) {
	t.Parallel()
	f, done := files(t)
	defer done()
	other, otherDone := files(t)
	defer otherDone()
	key, err := apiclient.Daemon(f, "win-a").PendingKey()
	if err != nil {
		t.Fatal(err)
	}
	foreignKey, err := apiclient.Daemon(other, "win-a").PendingKey()
	if err != nil {
		t.Fatal(err)
	}
	request := func(key *ecdsa.PrivateKey, node string) []byte {
		content, err := apiclient.Daemon(nil, node).NewRequest(key)
		if err != nil {
			t.Fatal(err)
		}
		return content
	}
	for name, c := range map[string]struct {
		certificate []byte
		want        string
	}{
		"another key":    {sign(t, request(foreignKey, "win-a")), "key that this host does not have"},
		"another node":   {sign(t, request(key, "win-b")), `"system:wicd-node:win-b"`},
		"no certificate": {[]byte("hello"), "no certificate"},
		"a request":      {request(key, "win-a"), "no certificate"},
	} {
		err := apiclient.Daemon(f, "win-a").StoreCertificate(c.certificate)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err = apiclient.Daemon(f, "win-a").LoadCertificate(); err == nil {
		t.Error("a wrong certificate was stored")
	}
	certificate := sign(t, request(key, "win-a"))
	for n := range 2 {
		if err = apiclient.Daemon(f, "win-a").StoreCertificate(certificate); err != nil {
			t.Errorf("call %d: %v", n, err)
		}
	}
}

func TestADamagedPendingKeyIsReplaced(t *testing.T) {
	t.Parallel()
	f, done := files(t)
	defer done()
	if err := winos.WriteFile(f, contract.DirDaemonCerts+`\wicd-client-pending.key`, strings.NewReader("?"),
		winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	enroll(t, f, "win-a")
}

func TestRenewalIsAtAboutTwoThirds(t *testing.T) {
	t.Parallel()
	from := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leaf := &x509.Certificate{NotBefore: from, NotAfter: from.Add(100 * time.Hour)}
	for spread, want := range map[float64]time.Duration{0: 70 * time.Hour, 0.5: 65 * time.Hour,
		0.9999: 60 * time.Hour} {
		if got := apiclient.RenewalTime(leaf, spread).Sub(from).Round(time.Hour); got != want {
			t.Errorf("spread %v: after %s, want %s", spread, got, want)
		}
	}
}

// signer signs certificate requests, as a cluster does.
type signer struct {
	t   *testing.T
	api *fake.FakeDynamicClient

	mu   sync.Mutex
	made []*unstructured.Unstructured
	// deny is the number of the request that is denied. The first request has number 0. down is the number of the next
	// calls that fail. asked is the number of calls so far.
	deny, down, asked int
	// behind is how far the cluster's clock is behind the host's clock.
	behind time.Duration
	// lives is the lifetime of new certificates.
	lives time.Duration
}

// sign sets the lifetime of certificates. Half of the lifetime is in the past, as signers do for hosts whose clocks are
// behind.
func (s *signer) sign(lives time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lives, s.behind = lives, lives/2
}

// ahead sets how far the host's clock is ahead of the cluster's clock. The daemon notices this only in its
// certificates.
func (s *signer) ahead(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = d
}

func (s *signer) attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

func (s *signer) created() []*unstructured.Unstructured {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.made)
}

// set sets which request is denied, and how many of the next calls fail.
func (s *signer) set(deny, down int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deny, s.down = deny, down
}

func newSigner(t *testing.T) *signer {
	t.Helper()
	s := &signer{t: t, deny: -1, lives: life, api: fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{requests(): "CertificateSigningRequestList"})}
	s.api.PrependReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.asked++
		if s.down > 0 {
			s.down--
			return true, nil, errors.New("connection refused")
		}
		if create, ok := action.(clienttesting.CreateAction); ok {
			s.create(create.GetObject().(*unstructured.Unstructured))
		}
		return false, nil, nil
	})
	return s
}

func requests() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1",
		Resource: "certificatesigningrequests"}
}

func (s *signer) create(object *unstructured.Unstructured) {
	s.made = append(s.made, object.DeepCopy())
	if s.deny == len(s.made)-1 {
		_ = unstructured.SetNestedSlice(object.Object,
			[]any{map[string]any{"type": "Denied", "reason": "Test", "message": "no"}}, "status", "conditions")
		return
	}
	encoded, _, _ := unstructured.NestedString(object.Object, "spec", "request")
	request, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		s.t.Error(err)
	}
	_ = unstructured.SetNestedField(object.Object,
		base64.StdEncoding.EncodeToString(signAt(s.t, request, time.Now().Add(-s.behind), s.lives)), "status", "certificate")
}

// renewing runs a Renewer with synctest's clock until test returns.
func renewing(t *testing.T, test func(t *testing.T, f winos.Files, s *signer, renewed *atomic.Int32)) {
	t.Helper()
	renewingBy(t, clock.RealClock{}, taken, test)
}

// taken is a Renewed function that always succeeds.
func taken(int32) error { return nil }

func renewingBy(t *testing.T, by clock.Clock, renew func(n int32) error,
	test func(t *testing.T, f winos.Files, s *signer, renewed *atomic.Int32)) {
	t.Helper()
	renewingThrough(t, by, func(api dynamic.Interface) dynamic.Interface { return api }, renew, test)
}

// renewingThrough is like renewing, with a proxy in front of the API server.
func renewingThrough(t *testing.T, by clock.Clock, through func(api dynamic.Interface) dynamic.Interface,
	renew func(n int32) error, test func(t *testing.T, f winos.Files, s *signer, renewed *atomic.Int32)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, done := files(t)
		defer done()
		enroll(t, f, "win-a")
		s, renewed := newSigner(t), new(atomic.Int32)
		r := &apiclient.Renewer{
			Identity: apiclient.Daemon(f, "win-a"), Client: through(s.api), Lifetime: life, Clock: by, Spread: func() float64 { return 0 },
			Renewed: func() error { return renew(renewed.Add(1)) },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		test(t, f, s, renewed)
		cancel()
		<-ended
	})
}

func pass(d time.Duration) {
	time.Sleep(d) // the test's own clock jumps ahead
	synctest.Wait()
}

func pair(t *testing.T, f winos.Files) []byte {
	t.Helper()
	content, err := winos.ReadFile(f, contract.PathDaemonCertificate)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// A new certificate was stored, but the first attempt to use it failed. The daemon must retry before the current
// certificate expires.
func TestACertificateThatCouldNotBeUsedAtOnceIsUsedLater(t *testing.T) {
	renewingBy(t, clock.RealClock{}, func(n int32) error {
		if n == 1 {
			return errors.New("the file can't be read")
		}
		return nil
	}, func(t *testing.T, f winos.Files, _ *signer, renewed *atomic.Int32) {
		first := pair(t, f)
		pass(life * 3 / 4)
		if bytes.Equal(pair(t, f), first) {
			t.Fatal("the certificate was not renewed")
		}
		pass(time.Hour)
		if n := renewed.Load(); n != 2 {
			t.Errorf("the new certificate was used %d times", n)
		}
	})
}

func TestTheCertificateIsRenewedInTimeAgainAndAgain(t *testing.T) {
	renewing(t, func(t *testing.T, f winos.Files, s *signer, renewed *atomic.Int32) {
		first := pair(t, f)
		pass(life * 69 / 100)
		if renewed.Load() != 0 || len(s.created()) != 0 {
			t.Fatal("the certificate was renewed too early")
		}
		pass(life * 2 / 100)
		second := pair(t, f)
		if renewed.Load() != 1 || bytes.Equal(first, second) {
			t.Fatalf("renewed %d times", renewed.Load())
		}
		before, err := apiclient.ParseCertificate(first)
		if err != nil {
			t.Fatal(err)
		}
		after, err := apiclient.ParseCertificate(second)
		if err != nil {
			t.Fatal(err)
		}
		if before.Leaf.PublicKey.(*ecdsa.PublicKey).Equal(after.Leaf.PublicKey) {
			t.Error("the key is the old one")
		}
		spec := s.created()[0].Object["spec"].(map[string]any)
		if spec["signerName"] != "kubernetes.io/kube-apiserver-client" ||
			spec["expirationSeconds"] != int64(life.Seconds()) {
			t.Errorf("the request is %v", spec)
		}
		pass(life * 71 / 100)
		if renewed.Load() != 2 {
			t.Errorf("renewed %d times", renewed.Load())
		}
	})
}

func TestADeniedRenewalIsTriedWithAnotherKey(t *testing.T) {
	renewing(t, func(t *testing.T, f winos.Files, s *signer, renewed *atomic.Int32) {
		s.set(0, 0)
		pass(life*70/100 + 9*time.Minute)
		if renewed.Load() != 0 || len(s.created()) != 1 {
			t.Fatalf("renewed %d times after %d requests", renewed.Load(), len(s.created()))
		}
		pass(2 * time.Minute)
		if renewed.Load() != 1 || len(s.created()) != 2 || s.created()[0].GetName() == s.created()[1].GetName() {
			t.Errorf("renewed %d times after %d requests", renewed.Load(), len(s.created()))
		}
		_ = f
	})
}

// scanned is a file system in which one file can't be replaced for a while.
type scanned struct {
	winos.Files
	mu   sync.Mutex
	path string
	// open is how many of the next attempts to replace the file fail.
	open int
}

// Rename implements winos.Files.
func (s *scanned) Rename(from, to string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if to == s.path && s.open > 0 {
		s.open--
		return errors.New("there is no room")
	}
	return s.Files.Rename(from, to)
}

func TestACertificateThatCouldNotBeWrittenAtOnceIsWrittenLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, done := files(t)
		defer done()
		enroll(t, f, "win-a")
		first := pair(t, f)
		s := newSigner(t)
		s.set(1, 0) // no second request will be signed
		r := &apiclient.Renewer{
			Identity: apiclient.Daemon(&scanned{Files: f, path: contract.PathDaemonCertificate, open: 1}, "win-a"),
			Client:   s.api, Lifetime: life, Clock: clock.RealClock{}, Spread: func() float64 { return 0 },
			Renewed: func() error { return nil },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			r.Run(ctx)
		}()
		pass(life*70/100 + 5*time.Minute)
		if len(s.created()) != 1 || !bytes.Equal(pair(t, f), first) {
			t.Errorf("after %d requests, the certificate can be written", len(s.created()))
		}
		pass(10 * time.Minute)
		if bytes.Equal(pair(t, f), first) {
			t.Error("the issued certificate is lost")
		}
		for _, request := range s.created() {
			if name := request.GetName(); name != s.created()[0].GetName() {
				t.Errorf("another request was made: %s", name)
			}
		}
		cancel()
		<-ended
	})
}

func TestARenewalWithoutTheAPIServerIsMadeUpFor(t *testing.T) {
	renewing(t, func(t *testing.T, _ winos.Files, s *signer, renewed *atomic.Int32) {
		s.set(-1, 5)
		pass(life*70/100 + 45*time.Minute)
		if renewed.Load() != 0 {
			t.Fatal("the certificate was renewed without an API server")
		}
		pass(time.Hour)
		if renewed.Load() != 1 || len(s.created()) != 1 {
			t.Errorf("renewed %d times after %d requests", renewed.Load(), len(s.created()))
		}
	})
}

func TestAHostWhoseClockIsAheadDoesNotRenewWithoutEnd(t *testing.T) {
	renewing(t, func(t *testing.T, _ winos.Files, s *signer, renewed *atomic.Int32) {
		s.ahead(life * 3 / 4)
		pass(life * 71 / 100)
		before := renewed.Load()
		pass(5 * time.Hour)
		if n := renewed.Load() - before; before < 1 || n > 6 {
			t.Errorf("renewed %d times, then %d times within five hours", before, n)
		}
	})
}

func TestACertificateThatIsGoodForMinutesIsRenewedInTime(t *testing.T) {
	renewing(t, func(t *testing.T, f winos.Files, s *signer, renewed *atomic.Int32) {
		s.sign(10 * time.Minute)
		s.set(3, 0) // one renewal is denied
		pass(life * 70 / 100)
		for range 60 {
			pass(time.Minute)
			have, err := apiclient.ParseCertificate(pair(t, f))
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(have.Leaf.NotAfter); left <= 0 {
				t.Fatalf("after %d renewals, the certificate expired %s ago", renewed.Load(), -left)
			}
		}
		if n := renewed.Load(); n < 12 || n > 80 {
			t.Errorf("renewed %d times within an hour", n)
		}
	})
}

// sleeper is the clock of a host that was suspended: the time jumps ahead, but timers that are running don't end
// earlier.
type sleeper struct {
	clock.RealClock
	slept atomic.Int64
}

func (s *sleeper) Now() time.Time { return s.RealClock.Now().Add(time.Duration(s.slept.Load())) }

func TestTheCertificateIsRenewedSoonAfterTheHostWasSuspended(t *testing.T) {
	host := &sleeper{}
	renewingBy(t, host, taken, func(t *testing.T, _ winos.Files, _ *signer, renewed *atomic.Int32) {
		pass(24 * time.Hour)
		host.slept.Store(int64(10 * 24 * time.Hour))
		pass(time.Hour + time.Minute)
		if renewed.Load() != 1 {
			t.Errorf("renewed %d times", renewed.Load())
		}
	})
}

func TestAnExpiredCertificateAsksForNothing(t *testing.T) {
	renewing(t, func(t *testing.T, _ winos.Files, s *signer, renewed *atomic.Int32) {
		s.set(-1, 1<<30) // the API server is down until the certificate has expired
		pass(life + time.Hour)
		asked := s.attempts()
		pass(24 * time.Hour)
		if n := s.attempts(); n != asked || renewed.Load() != 0 {
			t.Errorf("%d attempts with an expired certificate, renewed %d times", n-asked, renewed.Load())
		}
	})
}

func TestTwoRequestsForOneKeyDiffer(t *testing.T) {
	t.Parallel()
	f, done := files(t)
	defer done()
	var requests [][]byte
	for range 2 {
		key, err := apiclient.Daemon(f, "win-a").PendingKey()
		if err != nil {
			t.Fatal(err)
		}
		request, err := apiclient.Daemon(nil, "win-a").NewRequest(key)
		if err != nil {
			t.Fatal(err)
		}
		requests = append(requests, request)
	}
	// The operator creates an object with the same name as the request. So if a request was denied, the next request
	// must have another name.
	if bytes.Equal(requests[0], requests[1]) {
		t.Error("the second request has the name of the first")
	}
}
