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
	"strings"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster/clustertest"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/fleet"
	"github.com/windows-nodes/wmco/lab/openshift"
)

func TestA21_AnotherClientCAOfKubeletReachesEveryNodeWithoutARestart(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	added, old := authority(t, "the next client CA"), []byte(nil)
	config := &mcfgv1.ControllerConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine-config-controller"}}
	has := func(wanted bool) func(h *fleet.Host) error {
		return func(h *fleet.Host) error {
			content, err := winos.ReadFile(h.Machine.Host().Files, contract.PathKubeletCA)
			if err != nil {
				return err
			}
			if n := bytes.Count(content, bytes.TrimSpace(added)); n > 1 || (n == 1) != wanted ||
				!bytes.Contains(content, bytes.TrimSpace(old)) {
				return fmt.Errorf("the new CA is there %d times in %d bytes", n, len(content))
			}
			return nil
		}
	}
	lend(t, c, config, func(o *mcfgv1.ControllerConfig) func(*mcfgv1.ControllerConfig) {
		old = o.Spec.KubeAPIServerServingCAData
		o.Spec.KubeAPIServerServingCAData = append(bytes.Clone(old), added...)
		return func(o *mcfgv1.ControllerConfig) { o.Spec.KubeAPIServerServingCAData = old }
	})
	c.everywhere(t, "the next CA beside the old one", has(true))
	c.settled(t)
	undisturbed(t, before, c.hosts...)
}

func TestA25_AuthoritiesAreInTheRootStoreOnceAndLeaveItAgain(t *testing.T) {
	c := dayTwo(t)
	before := pids(t, c.hosts...)
	ours, theirs := authority(t, "ours"), authority(t, "theirs, there already")
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
				return fmt.Errorf("ours is there %d times, theirs %d times, of %d", mine, his, len(all))
			}
			return nil
		}
	}
	c.put(t, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace, Name: "windows-authorities"},
		Data:       map[string]string{"one": string(ours) + string(theirs), "other": "# again\n" + string(ours)},
	})
	c.lendSettings(t, func(spec *v1alpha1.WindowsMachineConfigSpec) { spec.Trust.AdditionalCA = "windows-authorities" })
	c.everywhere(t, "the authority, once", count(1, 1))
	must(t, c.Configure(t.Context(), *options(0).Settings))
	c.everywhere(t, "the authority to be gone, and nothing else", count(0, 0))
	c.settled(t)
	undisturbed(t, before, c.hosts...)
	for _, h := range c.hosts {
		must(t, h.Machine.Host().Trust.Remove(t.Context(), der(t, theirs)))
	}
}

func TestA26_TheExporterServesTheKeyThatTheClusterMadeLast(t *testing.T) {
	c := dayTwo(t)
	rotate := func() []byte {
		t.Helper()
		certificate, err := openshift.RotateExporterKey(t.Context(), c.Cluster.Admin())
		must(t, err)
		return certificate
	}
	shows := func(certificate []byte) func(h *fleet.Host) error {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(certificate)
		return func(h *fleet.Host) error { return handshake(t.Context(), h, pool) }
	}
	before := pids(t, c.hosts...)
	first := rotate()
	t.Cleanup(func() { c.dropExporterKey(t) })
	c.everywhere(t, "the first key to be served over TLS", shows(first))
	c.settled(t)
	restarted(t, before, c.hosts, contract.ServiceExporter)
	for _, h := range c.hosts {
		if s := managed(t, h)[contract.ServiceExporter]; !strings.Contains(s.Command, "--web.config.file=") {
			t.Errorf("%s: it is told of no key: %s", h.Name, s.Command)
		}
	}
	before = pids(t, c.hosts...)
	c.everywhere(t, "the next key to be served", shows(rotate()))
	c.settled(t)
	undisturbed(t, before, c.hosts...)
	for _, h := range c.hosts {
		if shows(first)(h) == nil {
			t.Errorf("%s still shows the first certificate", h.Name)
		}
		if info, err := h.Machine.Host().Files.Stat(contract.PathExporterKey); err != nil ||
			info.Access != winos.AccessAdministrators {
			t.Errorf("%s: others may read the exporter's key: %v", h.Name, err)
		}
	}
}

// dropExporterKey takes away what RotateExporterKey made.
func (c *crew) dropExporterKey(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.OperatorNamespace,
		Name: contract.ExporterTLSSecret}}
	if err := c.admin.Delete(context.WithoutCancel(t.Context()), secret); err != nil {
		t.Error(err)
	}
}

// handshake speaks TLS to the exporter of a host.
func handshake(ctx context.Context, h *fleet.Host, pool *x509.CertPool) error {
	dialer := &tls.Dialer{Config: &tls.Config{RootCAs: pool, ServerName: openshift.ExporterServerName,
		MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp",
		net.JoinHostPort(h.Machine.Address().String(), strconv.Itoa(contract.MetricsPort)))
	if err != nil {
		return err
	}
	return conn.Close()
}

// authority makes a certificate authority that signs nothing here, in PEM.
func authority(t *testing.T, name string) []byte {
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
