package e2e_test

import (
	"testing"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
)

// intruder is a separate user agent for tests that use a stolen credential, so that their requests don't count as
// requests of the credential's owner.
const intruder = "intruder"

// kubeletCredential is the file with kubelet's certificate and key.
const kubeletCredential = contract.DirKubeletPKI + `\kubelet-client-current.pem`

// stolen returns a configuration that uses the certificate and key in a file of a host.
func (s *stage) stolen(t *testing.T, h *fleet.Host, path string) *rest.Config {
	t.Helper()
	config := rest.AnonymousClientConfig(s.Cluster.Admin())
	config.CertData = hostFile(t, h, path)
	config.KeyData, config.UserAgent = config.CertData, intruder
	return config
}

// account returns a configuration that uses a new token of a service account.
func (s *stage) account(t *testing.T, namespace, name string) *rest.Config {
	t.Helper()
	config, _, err := s.Cluster.ServiceAccountConfig(t.Context(), namespace, name, tokenLife)
	if err != nil {
		t.Fatal(err)
	}
	config.UserAgent = intruder
	return config
}

func (s *stage) as(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: s.Client.Scheme(), Mapper: s.Client.RESTMapper()})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// hostFile reads a file of a host.
func hostFile(t *testing.T, h *fleet.Host, path string) []byte {
	t.Helper()
	content, err := winos.ReadFile(h.Machine.Host().Files, path)
	if err != nil {
		t.Fatalf("reading %s of %s: %v", path, h.Name, err)
	}
	return content
}
