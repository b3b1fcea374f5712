package verbs

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
)

// reachTimeout is for how long the API server is waited for: name resolution, TCP and TLS together.
const reachTimeout = 10 * time.Second

// reach tries whether the API server answers at the address that nodes use, with a certificate of the
// cluster's by the host's own clock. It sends nothing and needs no credential.
func reach(ctx context.Context, request contract.PreflightRequest, now func() time.Time) error {
	if request.APIServer == "" {
		return nil
	}
	server, err := url.Parse(request.APIServer)
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	port := server.Port()
	if port == "" {
		port = "443"
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(request.CA) {
		return errors.New("the operator sent no certificate of the API server's CA")
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: pool, Time: now, MinVersion: tls.VersionTLS12}}
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(server.Hostname(), port))
	if err != nil {
		return err
	}
	return conn.Close()
}
