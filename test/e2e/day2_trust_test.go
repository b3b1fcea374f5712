package e2e_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"strconv"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/test/clustertest"
)

func TestA21_AnotherClientCAOfKubeletReachesEveryNodeWithoutARestart(t *testing.T) {
	clientCAChanges(t, dayTwo(t))
}

// clientCAChanges adds a CA for kubelet's clients. Every node must trust both CAs without a restart of a service.
func clientCAChanges(t *testing.T, c *crew) {
	t.Helper()
	before, added := pids(t, c.hosts...), newCA(t, "the next client CA")
	old := c.addClientCA(t, c, added)
	c.everywhere(t, "the next CA next to the old CA", func(h *fleet.Host) error {
		content, err := winos.ReadFile(h.Machine.Host().Files, contract.PathKubeletCA)
		if err != nil {
			return err
		}
		if n := bytes.Count(content, bytes.TrimSpace(added)); n != 1 ||
			!bytes.Contains(content, bytes.TrimSpace(old)) {
			return fmt.Errorf("the file has the new CA %d times (%d bytes)", n, len(content))
		}
		return nil
	})
	c.settled(t)
	undisrupted(t, before, c.hosts...)
}

func TestA25_CAsAreInTheRootStoreOnceAndLeaveItAgain(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ours, theirs := newCA(t, "ours"), newCA(t, "theirs, there already")
	others := map[string]int{}
	for _, h := range c.hosts {
		must(t, h.Machine.Host().Trust.Add(t.Context(), der(t, theirs)))
		others[h.Name] = len(roots(t, h))
	}
	count := func(extra, wanted int) func(h *fleet.Host) error {
		return func(h *fleet.Host) error {
			all := roots(t, h)
			if mine, his := occurrences(all, der(t, ours)), occurrences(all, der(t, theirs)); mine != wanted ||
				his != 1 || len(all) != others[h.Name]+extra {
				return fmt.Errorf("the root store has the operator's CA %d times and the foreign CA %d times, "+
					"of %d CAs", mine, his, len(all))
			}
			return nil
		}
	}
	c.put(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-cas"},
		Data:       map[string]string{"one": string(ours) + string(theirs), "other": "# again\n" + string(ours)},
	})
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = "windows-cas" })
	c.everywhere(t, "the CA exactly once in the root store", count(1, 1))
	must(t, c.Configure(t.Context(), c.settings))
	c.everywhere(t, "the removal of exactly this CA", count(0, 0))
	c.settled(t)
	undisrupted(t, before, c.hosts...)
	for _, h := range c.hosts {
		must(t, h.Machine.Host().Trust.Remove(t.Context(), der(t, theirs)))
	}
}

func TestA26_TheExporterServesTheCertificateThatKubeletGotLast(t *testing.T) {
	c := dayTwo(t)
	shows := func(pool *x509.CertPool) func(h *fleet.Host) error {
		return func(h *fleet.Host) error { return handshake(t.Context(), h, pool, h.Machine.Address().String()) }
	}
	cluster := x509.NewCertPool()
	cluster.AppendCertsFromPEM(c.Cluster.Admin().CAData)
	c.everywhere(t, "kubelet's certificate to be served over TLS", shows(cluster))
	before := pids(t, c.hosts...)
	next := x509.NewCertPool()
	for _, h := range c.hosts {
		files := h.Machine.Host().Files
		old, err := winos.ReadFile(files, contract.PathKubeletServingPair)
		must(t, err)
		t.Cleanup(func() {
			must(t, winos.WriteFile(files, contract.PathKubeletServingPair, bytes.NewReader(old),
				winos.AccessAdministrators))
		})
		certificate, key, err := cert.GenerateSelfSignedCertKey(h.Name, []net.IP{h.Machine.Address().AsSlice()}, nil)
		must(t, err)
		next.AppendCertsFromPEM(certificate)
		must(t, winos.WriteFile(files, contract.PathKubeletServingPair, bytes.NewReader(append(certificate, key...)),
			winos.AccessAdministrators))
	}
	c.everywhere(t, "the next certificate to be served", shows(next))
	c.settled(t)
	undisrupted(t, before, c.hosts...)
	for _, h := range c.hosts {
		if shows(cluster)(h) == nil {
			t.Errorf("%s still shows the first certificate", h.Name)
		}
		if info, err := h.Machine.Host().Files.Stat(contract.PathKubeletServingPair); err != nil ||
			info.Access != winos.AccessAdministrators {
			t.Errorf("%s: others may read the exporter's key: %v", h.Name, err)
		}
	}
}

// An attacker takes every credential from one node, and tries to answer for another node's exporter. Prometheus must
// not accept the certificate.
func TestA53_ANodesExporterShowsACertificateForThatNodeOnly(t *testing.T) {
	c := dayTwo(t)
	cluster := x509.NewCertPool()
	cluster.AppendCertsFromPEM(c.Cluster.Admin().CAData)
	keys := map[string]string{}
	for i, h := range c.hosts {
		other := c.hosts[(i+1)%len(c.hosts)]
		c.on(t, []*fleet.Host{h}, "the exporter to show a certificate for its own host", func(h *fleet.Host) error {
			return handshake(t.Context(), h, cluster, h.Machine.Address().String())
		})
		if err := handshake(t.Context(), h, cluster, other.Machine.Address().String()); !errors.As(err,
			new(x509.HostnameError)) {
			t.Errorf("%s answers for %s: %v", h.Name, other.Name, err)
		}
		pair, err := winos.ReadFile(h.Machine.Host().Files, contract.PathKubeletServingPair)
		must(t, err)
		if owner := keys[string(pair)]; owner != "" {
			t.Errorf("%s has the key of %s", h.Name, owner)
		}
		keys[string(pair)] = h.Name
	}
}

// handshake opens a TLS connection to a host's exporter, and verifies the certificate for a name or address.
func handshake(ctx context.Context, h *fleet.Host, pool *x509.CertPool, name string) error {
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: name,
		MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp",
		net.JoinHostPort(h.Machine.Address().String(), strconv.Itoa(contract.MetricsPort)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// newCA returns the certificate of a new CA in PEM. The CA signs nothing in these tests.
func newCA(t *testing.T, name string) []byte {
	t.Helper()
	certificate, err := clustertest.Certificate(name)
	must(t, err)
	return certificate
}

func der(t *testing.T, certificate []byte) []byte {
	t.Helper()
	block, _ := pem.Decode(certificate)
	if block == nil {
		t.Fatal(errors.New("no certificate"))
	}
	return block.Bytes
}

func roots(t *testing.T, h *fleet.Host) [][]byte {
	t.Helper()
	all, err := h.Machine.Host().Trust.List(t.Context())
	must(t, err)
	return all
}

func occurrences(all [][]byte, one []byte) (n int) {
	for _, c := range all {
		if bytes.Equal(c, one) {
			n++
		}
	}
	return n
}
