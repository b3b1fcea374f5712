package apiclient_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/apiclient"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

// identity is a self-signed certificate with its key.
type identity struct {
	tls.Certificate
	ca, pair []byte
}

func newIdentity(t *testing.T, name string) *identity {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	i := &identity{ca: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
	i.pair = slices.Concat(i.ca, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
	if i.Certificate, err = tls.X509KeyPair(i.pair, i.pair); err != nil {
		t.Fatal(err)
	}
	return i
}

// The CA of the API server is rotated while the daemon runs.
func TestADaemonFollowsTheCAOfTheAPIServerWithoutARestart(t *testing.T) {
	t.Parallel()
	first, second := newIdentity(t, "first"), newIdentity(t, "second")
	both := slices.Concat(first.ca, second.ca)
	type step struct {
		serves *identity // the API server's certificate from this step on
		trusts []byte    // the CAs in the revision
		holds  []byte    // the CAs in the kubeconfig after the step
		held   bool      // the host already has this revision
	}
	for name, steps := range map[string][]step{
		"with an overlap": {{serves: first, trusts: both, holds: both},
			{serves: second, trusts: second.ca, holds: second.ca}},
		// At first, only the old CA verifies the API server.
		"too early": {{serves: first, trusts: second.ca, holds: slices.Concat(second.ca, first.ca)},
			{serves: first, trusts: second.ca, holds: slices.Concat(second.ca, first.ca)},
			{serves: second, trusts: second.ca, holds: second.ca, held: true},
			{serves: second, trusts: second.ca, holds: second.ca, held: true}},
		"as it is": {{serves: first, trusts: first.ca, holds: first.ca}},
		// The previous daemon did not update the kubeconfig. Both CAs verify the API server at this time.
		"by an upgrade": {{serves: first, trusts: both, holds: both, held: true},
			{serves: second, trusts: both, holds: both, held: true}},
		// A join has installed another CA than the CA in the host's current revision.
		"by a join": {{serves: first, trusts: second.ca, holds: first.ca, held: true}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var serves atomic.Pointer[identity]
			serves.Store(first)
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"win-a"}}`))
			}))
			server.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
				return &tls.Config{Certificates: []tls.Certificate{serves.Load().Certificate}, MinVersion: tls.VersionTLS12}, nil
			}}
			server.StartTLS()
			defer server.Close()
			files, l := opened(t, server.URL, first.ca)
			for _, s := range steps {
				serves.Store(s.serves)
				server.CloseClientConnections()
				settled, err := l.Trust(t.Context(), s.trusts, !s.held)
				if err != nil || settled != bytes.Equal(s.trusts, s.holds) {
					t.Fatal(settled, err)
				}
				content, err := winos.ReadFile(files, contract.PathDaemonKubeconfig)
				if err != nil {
					t.Fatal(err)
				}
				config, err := clientcmd.Load(content)
				if err != nil {
					t.Fatal(err)
				}
				if k := config.Clusters["k"]; k.Server != server.URL || !bytes.Equal(k.CertificateAuthorityData, s.holds) {
					t.Errorf("the kubeconfig trusts\n%s\nwant\n%s", k.CertificateAuthorityData, s.holds)
				}
				nodes := l.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
				if _, err = nodes.Get(t.Context(), "win-a", metav1.GetOptions{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// Another program has the CA bundle open for a moment, so the daemon can't read it.
func TestADaemonThatCouldNotFollowTheCAOfTheAPIServerDoesSoLater(t *testing.T) {
	t.Parallel()
	first, second := newIdentity(t, "first"), newIdentity(t, "second")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion":"v1","kind":"Node","metadata":{"name":"win-a"}}`))
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{second.Certificate}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	files, l := opened(t, server.URL, first.ca)
	// A directory, which can't be read as a file.
	if err := files.MkdirAll(pathBundle, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	if settled, err := l.Trust(t.Context(), second.ca, true); err == nil || settled {
		t.Error("Trust succeeded, although the CA bundle can't be read")
	}
	if err := files.Remove(pathBundle); err != nil {
		t.Fatal(err)
	}
	if settled, err := l.Trust(t.Context(), second.ca, true); err != nil || !settled {
		t.Fatal(settled, err)
	}
	nodes := l.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "nodes"})
	if _, err := nodes.Get(t.Context(), "win-a", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestADaemonDoesNotTrustWhatHasNoCA(t *testing.T) {
	t.Parallel()
	first := newIdentity(t, "first")
	files, l := opened(t, "https://127.0.0.1:1", first.ca)
	if _, err := l.Trust(t.Context(), []byte("nonsense"), true); err == nil {
		t.Error("Trust accepted text without a CA")
	}
	content, err := winos.ReadFile(files, contract.PathDaemonKubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	if server, err := apiclient.ServerOf(content); err != nil || !bytes.Equal(server.CA, first.ca) {
		t.Errorf("the kubeconfig has %+v, %v", server, err)
	}
}

const pathBundle = contract.DirK + `\ca-bundle.crt`

// opened returns the files of a host after its handover, and a client with these files.
func opened(t *testing.T, url string, ca []byte) (winos.Files, *apiclient.Client) {
	t.Helper()
	m, err := sim.New(sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	files := m.Host().Files
	config := clientcmdapi.NewConfig()
	config.Clusters["k"] = &clientcmdapi.Cluster{Server: url, CertificateAuthorityData: ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificate: contract.PathDaemonCertificate}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "k", AuthInfo: "u"}
	config.CurrentContext = "c"
	content, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	if err = files.MkdirAll(contract.DirDaemonCerts, winos.AccessAdministrators); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{contract.PathDaemonKubeconfig: content,
		contract.PathDaemonCertificate: newIdentity(t, contract.DaemonUserPrefix+"win-a").pair} {
		if err = winos.WriteFile(files, path, bytes.NewReader(text), winos.AccessAdministrators); err != nil {
			t.Fatal(err)
		}
	}
	l, err := apiclient.Open(apiclient.Options{Files: files, Kubeconfig: contract.PathDaemonKubeconfig,
		CABundle: pathBundle, UserAgent: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return files, l
}
