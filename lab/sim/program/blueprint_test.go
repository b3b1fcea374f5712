package program_test

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim/program"
	"github.com/windows-nodes/wmco/test/blueprinttest"
)

// TestStandinsTakeEverythingThatIsPublished starts each service of each platform with the files and the command line
// that package blueprint creates. The stand-ins must accept them.
func TestStandinsTakeEverythingThatIsPublished(t *testing.T) {
	t.Parallel()
	for name, content := range blueprinttest.Golden(t, "../../../internal/blueprint/testdata") {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rendered struct{ Manifest contract.Manifest }
			if err := yaml.Unmarshal([]byte(content), &rendered); err != nil {
				t.Fatal(err)
			}
			b := newBox(t, "published", program.Options{})
			for _, f := range rendered.Manifest.Files {
				if f.Digest == "" {
					b.write(t, f.Path, fill(f.Content, f.NodeVariables, f.HostVariables))
				}
			}
			certificate, key := keyPair(t)
			for path, content := range map[string]string{
				contract.PathKubeletCA: certificate, contract.PathBootstrapCA: certificate,
				contract.PathKubeconfig:          kubeconfig,
				contract.PathBootstrapKubeconfig: kubeconfig, // nothing listens at this address, so kubelet waits
				contract.PathDaemonKubeconfig:    kubeconfig, contract.PathKubeletServingPair: certificate + key,
				// The certificate has expired. kubelet requests a new certificate, and the other programs use the
				// expired certificate until then.
				contract.DirKubeletPKI + `\kubelet-client-current.pem`: certificate + key,
			} {
				b.write(t, path, content)
			}
			for _, s := range rendered.Manifest.Services {
				b.start(t, s.Name, fill(s.Command, s.NodeVariables, s.HostVariables))
			}
			for _, s := range rendered.Manifest.Services {
				if is, err := b.Host().Services.Get(t.Context(), s.Name); err != nil ||
					is.State != winos.ServiceRunning {
					t.Errorf("service %s did not stay running: %v, %v", s.Name, is.State, err)
				}
			}
		})
	}
}

// fill replaces the variables in a text, as the daemon does.
func fill(text string, node []contract.NodeVariable, host []contract.HostVariable) string {
	for _, v := range node {
		value := "published"
		if strings.Contains(v.JSONPath, "annotations") || strings.Contains(v.JSONPath, "podCIDR") {
			value = "10.132.0.0/24"
		}
		text = strings.ReplaceAll(text, v.Name, value)
	}
	values := map[contract.Fact]string{
		contract.FactHostname: "published", contract.FactNodeIP: "127.0.0.1", contract.FactSourceVIP: "10.132.0.2",
		contract.FactHNSSubnet: "10.132.0.0/24", contract.FactManagementIP: "127.0.0.1",
		contract.FactCloudNodeKubeconfig: contract.PathKubeconfig,
		contract.FactFlannelKubeconfig:   contract.PathKubeconfig,
	}
	for _, v := range host {
		text = strings.ReplaceAll(text, v.Name, values[v.Fact])
	}
	return text
}

func keyPair(t *testing.T) (certificate, key string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}))
}
