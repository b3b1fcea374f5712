package reconcile_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/reconcile"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func certificate(t *testing.T, name string, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// kubeconfigOf returns a kubeconfig as kubelet writes it.
func kubeconfigOf(server string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"users":[{"name":"u","user":{}}],
"clusters":[{"name":"k","cluster":{"server":%q}}]}`, server)
}

func half(text string) string { return text[:len(text)-60] }

func TestTheBootstrapCredentialIsThereExactlyWhileItIsNeeded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		kubeconfig, certificate string
		has, credential, kept   bool
	}{
		"a kubelet that never ran":           {"", "", false, true, false},
		"a kubeconfig without a certificate": {kubeconfigOf("https://api.example.com:6443"), "", false, true, true},
		// kubelet writes the kubeconfig without a flush, so a power cut right after the first join leaves zeros.
		"a kubeconfig of zeros": {string(make([]byte, 100)), pair(t, "system:node:win-a", now.Add(time.Hour)),
			false, true, true},
		"a kubeconfig without a server": {kubeconfigOf(""), pair(t, "system:node:win-a", now.Add(time.Hour)),
			false, true, true},
		"a kubeconfig without a user": {strings.ReplaceAll(kubeconfigOf("https://api.example.com:6443"), "users", "others"),
			pair(t, "system:node:win-a", now.Add(time.Hour)), false, true, true},
		"a certificate that can't be read": {kubeconfigOf("https://api.example.com:6443"), "nonsense", false, true, true},
		"a certificate without a kubeconfig": {"", pair(t, "system:node:win-a", now.Add(time.Hour)),
			false, true, false},
		// The disk was full, or the power was cut, while kubelet wrote its certificate. kubelet would not start with
		// this file.
		"a certificate without its key": {kubeconfigOf("https://api.example.com:6443"), certificate(t, "system:node:win-a", now.Add(time.Hour)),
			false, true, true},
		"a certificate with half its key": {kubeconfigOf("https://api.example.com:6443"), half(pair(t, "system:node:win-a", now.Add(time.Hour))),
			false, true, true},
		"an expired certificate": {kubeconfigOf("https://api.example.com:6443"), pair(t, "system:node:win-a", now.Add(-time.Second)),
			false, true, true},
		"a certificate with another name": {kubeconfigOf("https://api.example.com:6443"), pair(t, "system:node:win-b", now.Add(time.Hour)),
			false, true, false},
		"a valid certificate of its own name": {kubeconfigOf("https://api.example.com:6443"), pair(t, "system:node:win-a", now.Add(time.Hour)),
			true, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, err := sim.New(sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = m.Close() })
			files := m.Host().Files
			for path, content := range map[string]string{contract.PathKubeconfig: c.kubeconfig,
				contract.DirKubeletPKI + `\kubelet-client-current.pem`: c.certificate} {
				if content == "" {
					continue
				}
				if err = files.MkdirAll(path[:strings.LastIndex(path, `\`)], winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
				if err = winos.WriteFile(files, path, strings.NewReader(content), winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
			}
			if err = files.MkdirAll(contract.DirK, winos.AccessInherit); err != nil {
				t.Fatal(err)
			}
			if got, err := reconcile.KubeletHasIdentity(files, "win-a", now); err != nil || got != c.has {
				t.Errorf("identity %v, %v", got, err)
			}
			if strings.Contains(name, "another name") {
				if err = errors.Join(reconcile.ForgetKubeletCertificate(files),
					reconcile.ForgetKubeletCertificate(files)); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if err = reconcile.WriteBootstrapCredential(files, "win-a", now, []byte("secret")); err != nil {
					t.Fatal(err)
				}
			}
			info, err := files.Stat(contract.PathBootstrapKubeconfig)
			if (err == nil) != c.credential || err == nil && info.Access != winos.AccessAdministrators {
				t.Errorf("credential: %+v, %v", info, err)
			}
			if there, _ := winos.Exists(files, contract.PathKubeconfig); there != c.kept {
				t.Errorf("kubeconfig is there: %v", there)
			}
			if err = winos.WriteFile(files, contract.PathBootstrapKubeconfig, strings.NewReader("secret"),
				winos.AccessInherit); err != nil {
				t.Fatal(err)
			}
			if dropped, err := reconcile.DropBootstrapCredential(files, "win-a", now); err != nil ||
				dropped != c.has {
				t.Errorf("dropped %v, %v", dropped, err)
			}
		})
	}
}

func TestACertificateOfKubeletThatIsRefusedIsForgotten(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for name, c := range map[string]struct {
		code   int
		down   bool
		forgot bool
	}{
		"it is accepted":                  {http.StatusOK, false, false},
		"it may do nothing":               {http.StatusForbidden, false, false},
		"the API server is not well":      {http.StatusServiceUnavailable, false, false},
		"no server answers":               {http.StatusUnauthorized, true, false},
		"its signer is no longer trusted": {http.StatusUnauthorized, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if len(r.TLS.PeerCertificates) != 1 {
					t.Error("kubelet did not use its certificate")
				}
				w.WriteHeader(c.code)
			}))
			server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
			server.StartTLS()
			defer server.Close()
			if c.down {
				server.Close()
			}
			m, err := sim.New(sim.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = m.Close() }()
			files := m.Host().Files
			kubeconfig := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","current-context":"c",
"contexts":[{"name":"c","context":{"cluster":"k","user":"u"}}],"users":[{"name":"u","user":{}}],
"clusters":[{"name":"k","cluster":{"server":%q,"certificate-authority-data":%q}}]}`, server.URL,
				base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE",
					Bytes: server.Certificate().Raw})))
			for path, content := range map[string]string{contract.PathKubeconfig: kubeconfig,
				contract.DirKubeletPKI + `\kubelet-client-current.pem`: pair(t, "system:node:win-a", now.Add(time.Hour))} {
				if err = files.MkdirAll(path[:strings.LastIndex(path, `\`)], winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
				if err = winos.WriteFile(files, path, strings.NewReader(content), winos.AccessInherit); err != nil {
					t.Fatal(err)
				}
			}
			forgot, err := reconcile.ForgetRefusedKubelet(t.Context(), files, "win-a", now)
			if err != nil || forgot != c.forgot {
				t.Errorf("forgot %t, %v", forgot, err)
			}
			has, err := reconcile.KubeletHasIdentity(files, "win-a", now)
			if err != nil || has == c.forgot {
				t.Errorf("identity %t, %v", has, err)
			}
			// kubelet prefers the certificate in its store, even if its other files exist.
			there, err := winos.Exists(files, contract.DirKubeletPKI+`\kubelet-client-current.pem`)
			if err != nil || there == c.forgot {
				t.Errorf("the certificate is there: %t, %v", there, err)
			}
		})
	}
}

// pair returns a certificate with its key in one file, as kubelet stores them.
func pair(t *testing.T, name string, until time.Time) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: until}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})) +
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}))
}
