package program_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/sim/program"
)

func TestKubeletServesLogsAsItsConfigurationAndTheAPIServerSay(t *testing.T) {
	t.Parallel()
	b, _ := join(t, "logs", program.Options{})
	c, _ := startLab(t)
	b.write(t, contract.PathKubeletCA, string(c.CAPEM))
	b.awaitServing(t)
	admin := c.Admin()
	nobody, err := c.UserConfig("nobody")
	if err != nil {
		t.Fatal(err)
	}
	const file, first = "kubelet/kubelet.log", "successfully registered node"
	for _, step := range []struct {
		settings string // a part of kubelet's configuration
		who      *rest.Config
		path     string
		code     int
		says     string
	}{
		{"", admin, "", http.StatusOK, `<a href="kubelet/">`},
		{"", admin, file, http.StatusOK, first},
		{"", admin, "kubelet/other.log", http.StatusNotFound, ""},
		{"", admin, `..\..\k\kubeconfig`, http.StatusInternalServerError, ""},
		{"", admin, "?query=kubelet", http.StatusOK, `<a href="kubelet/">`}, // queries of logs are disabled
		{"", nobody, file, http.StatusForbidden, ""},
		{"", &rest.Config{}, file, http.StatusUnauthorized, ""},
		{`"enableSystemLogQuery": true,`, admin, "?query=kubelet", http.StatusOK, first},
		{`"enableSystemLogQuery": true,`, admin, "?query=kubelet&tailLines=3", http.StatusOK, "try without"},
		{`"enableSystemLogQuery": true,`, admin, "?query=wicd", http.StatusOK, "log not found for wicd"},
		{`"enableSystemLogQuery": true,`, admin, "?query=kubelet%5Ckubelet.log", http.StatusOK, first},
		{`"enableSystemLogQuery": true,`, admin, file, http.StatusOK, first},
		{`"enableSystemLogHandler": false,`, admin, file, http.StatusMethodNotAllowed, "disabled"},
		{`"enableDebuggingHandlers": false,`, admin, file, http.StatusMethodNotAllowed, "disabled"},
	} {
		b.stop(t, contract.ServiceKubelet)
		b.write(t, contract.PathKubeletConfig, strings.Replace(kubeletConfig, `"maxPods"`, step.settings+`"maxPods"`, 1))
		b.start(t, contract.ServiceKubelet, kubeletCommand)
		eventually(t, fmt.Sprintf("%s with %q to be %d", step.path, step.settings, step.code), func() error {
			code, body, err := b.kubelet(t.Context(), step.who, c.CAPEM, "/logs/"+step.path)
			if err == nil && (code != step.code || !strings.Contains(body, step.says)) {
				err = fmt.Errorf("%d %s", code, body)
			}
			return err
		})
	}
}

// kubelet sends a request to the machine's kubelet. It uses the client certificate in the config as.
func (b box) kubelet(ctx context.Context, as *rest.Config, ca []byte, path string) (code int, body string, err error) {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	security := &tls.Config{RootCAs: pool, ServerName: b.node, MinVersion: tls.VersionTLS12}
	if len(as.CertData) > 0 {
		pair, err := tls.X509KeyPair(as.CertData, as.KeyData)
		if err != nil {
			return 0, "", err
		}
		security.Certificates = []tls.Certificate{pair}
	}
	transport := &http.Transport{TLSClientConfig: security, DialContext: func(ctx context.Context, _, _ string) (net.Conn,
		error) {
		return b.Host().Network.Dial(ctx, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), contract.KubeletPort))
	}}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+b.node+":10250"+path, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return 0, "", err
	}
	content, err := io.ReadAll(response.Body)
	return response.StatusCode, string(content), errors.Join(err, response.Body.Close())
}
