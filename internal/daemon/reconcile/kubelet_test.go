package reconcile_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
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

func TestTheBootstrapCredentialIsThereExactlyWhileItIsNeeded(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		kubeconfig, certificate string
		want                    reconcile.KubeletIdentity
		credential, kept        bool
	}{
		"a kubelet that never ran":           {"", "", reconcile.NoIdentity, true, false},
		"a kubeconfig without a certificate": {"x", "", reconcile.NoIdentity, true, true},
		"a certificate that can't be read":   {"x", "nonsense", reconcile.NoIdentity, true, true},
		"a certificate without a kubeconfig": {"", certificate(t, "system:node:win-a", now.Add(time.Hour)),
			reconcile.NoIdentity, true, false},
		"an expired certificate": {"x", certificate(t, "system:node:win-a", now.Add(-time.Second)),
			reconcile.NoIdentity, true, true},
		"a certificate of another name": {"x", certificate(t, "system:node:win-b", now.Add(time.Hour)),
			reconcile.ForeignIdentity, true, false},
		"a valid certificate of its own name": {"x", certificate(t, "system:node:win-a", now.Add(time.Hour)),
			reconcile.OwnIdentity, false, true},
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
			if got, err := reconcile.KubeletIdentityOf(files, "win-a", now); err != nil || got != c.want {
				t.Errorf("identity %v, %v", got, err)
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
				dropped != (c.want == reconcile.OwnIdentity) {
				t.Errorf("dropped %v, %v", dropped, err)
			}
		})
	}
}
