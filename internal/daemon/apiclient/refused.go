package apiclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// refusedLimit bounds the request.
const refusedLimit = 15 * time.Second

// Refused asks the API server of a kubeconfig whether it refuses a client certificate. The API server refuses a
// certificate that hasn't expired if it no longer trusts the CA that signed it, for example after a restore of etcd. If
// the API server doesn't answer, Refused returns an error.
func Refused(ctx context.Context, files winos.Files, kubeconfig, certificate string) (bool, error) {
	server, err := readKubeconfig(files, kubeconfig)
	if err != nil {
		return false, err
	}
	content, err := winos.ReadFile(files, certificate)
	if err != nil {
		return false, fmt.Errorf("reading %s: %w", certificate, err)
	}
	pair, err := tls.X509KeyPair(content, content)
	if err != nil {
		return false, fmt.Errorf("parsing %s: %w", certificate, err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(server.CA)
	ctx, cancel := context.WithTimeout(ctx, refusedLimit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+"/api", nil)
	if err != nil {
		return false, fmt.Errorf("asking %s: %w", server.URL, err)
	}
	transport := &http.Transport{
		DialContext:       (&net.Dialer{Timeout: dialTimeout}).DialContext,
		DisableKeepAlives: true,
		Proxy:             func(*http.Request) (*url.URL, error) { return nil, nil },
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots,
			// Send the certificate even if no CA on the server's list has signed it. The request tests exactly this
			// case.
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }},
	}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return false, fmt.Errorf("asking %s: %w", server.URL, err)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 1<<10))
	return response.StatusCode == http.StatusUnauthorized, response.Body.Close()
}
