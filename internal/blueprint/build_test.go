package blueprint_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

// certificate returns text that looks like a certificate in PEM. Render doesn't check more in the bundles where tests
// use it.
func certificate(name string) string {
	return "-----BEGIN CERTIFICATE-----\n" + name + "\n-----END CERTIFICATE-----\n"
}

// input returns the facts of a cluster without a cloud, and a complete payload.
func input() blueprint.Input {
	return blueprint.Input{
		Facts: blueprint.Facts{
			Platform:          contract.PlatformNone,
			APIServer:         "https://api-int.cluster.example.com:6443",
			KubernetesVersion: "v1.36.3",
			Network: blueprint.Network{NetworkType: blueprint.NetworkOVNKubernetes,
				ServiceNetwork: netip.MustParsePrefix("172.30.0.0/16"), HybridOverlay: true},
			KubeletCA:   certificate("kubelet"),
			BootstrapCA: certificate("bootstrap"),
		},
		Payload:         complete(),
		Logging:         blueprint.DefaultLogging(),
		OperatorVersion: "0.1.0",
		Salt:            []byte("0123456789abcdef"),
		Now:             day(0),
	}
}

// day is a time on the n-th day of the tests.
func day(n int) time.Time { return time.Date(2026, 1, 1+n, 12, 0, 0, 0, time.UTC) }

type keyPair struct{ Certificate, Key []byte } // both PEM

// pair returns a certificate and its key. For the same name, it returns the same pair each time. words may contain
// "CA" or "expired".
func pair(t *testing.T, name string, words ...string) keyPair {
	t.Helper()
	seed := sha256.Sum256([]byte(name))
	key := ed25519.NewKeyFromSeed(seed[:])
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, BasicConstraintsValid: true,
		IsCA:      slices.Contains(words, "CA"),
		NotBefore: day(-1000), NotAfter: day(1000),
	}
	if slices.Contains(words, "expired") {
		template.NotAfter = day(-1)
	}
	parent := template
	if slices.Contains(words, "issued") {
		parent = &x509.Certificate{Subject: pkix.Name{CommonName: "issuer of " + name}}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return keyPair{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw}),
	}
}

// newCA creates a CA certificate in PEM.
func newCA(t *testing.T, name string, words ...string) string {
	t.Helper()
	return string(pair(t, name, append(words, "CA")...).Certificate)
}

// complete returns a payload with every file.
func complete() payload.Manifest {
	versions := map[string]string{contract.PathKubelet: "v1.36.3", contract.PathKubeProxy: "v1.36.3",
		contract.PathContainerd: "v2.4.2"}
	m := payload.Manifest{Version: "test"}
	for _, path := range []string{
		contract.PathKubelet, contract.PathKubeProxy, contract.PathKubeLogRunner, contract.PathHybridOverlay,
		contract.PathCSIProxy, contract.PathFlannel, contract.PathServiceWrapper,
		contract.PathWindowsExporter, contract.PathAzureNodeManager, contract.PathECRProvider, contract.PathDaemon,
		contract.PathContainerd,
		contract.PathContainerdShim, `C:\k\cni\win-overlay.exe`, `C:\k\cni\win-bridge.exe`, `C:\k\cni\host-local.exe`,
	} {
		name := path[strings.LastIndex(path, `\`)+1:]
		version := versions[path]
		if version == "" {
			version = "v1.0.0"
		}
		m.Files = append(m.Files, payload.File{
			Name: name, Version: version, Source: "supplied", Size: int64(1000 + len(name)),
			Digest: contract.Digest([]byte(name)), Path: path,
		})
	}
	return m
}

// lacking returns a payload without the named files.
func lacking(names ...string) payload.Manifest {
	m := complete()
	m.Files = slices.DeleteFunc(m.Files, func(f payload.File) bool { return slices.Contains(names, f.Name) })
	return m
}

// withVersion returns a payload that contains another version of one file.
func withVersion(path, version string) payload.Manifest {
	m := complete()
	for i := range m.Files {
		if m.Files[i].Path == path {
			m.Files[i].Version = version
		}
	}
	return m
}

func credentialProviders() *kubeletconfigv1.CredentialProviderConfig {
	return &kubeletconfigv1.CredentialProviderConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: "kubelet.config.k8s.io/v1", Kind: "CredentialProviderConfig"},
		Providers: []kubeletconfigv1.CredentialProvider{{
			Name: "ecr-credential-provider", MatchImages: []string{"*.dkr.ecr.*.amazonaws.com"},
			DefaultCacheDuration: &metav1.Duration{Duration: 12 * time.Hour},
			APIVersion:           "credentialprovider.kubelet.k8s.io/v1",
		}},
	}
}

// render renders the desired state, and fails the test if Render returns a problem.
func render(t *testing.T, in blueprint.Input) blueprint.Desired {
	t.Helper()
	desired, err := blueprint.Render(in)
	if err != nil {
		t.Fatalf("Render: %v", err)
	}
	return desired
}

// file returns the file with this path.
func file(t *testing.T, m contract.Manifest, path string) contract.File {
	t.Helper()
	i := slices.IndexFunc(m.Files, func(f contract.File) bool { return f.Path == path })
	if i < 0 {
		t.Fatalf("no file %s", path)
	}
	return m.Files[i]
}
