package apiclient

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"
)

// reachTimeout limits the wait for the API server: name resolution, TCP and TLS together.
const reachTimeout = 10 * time.Second

// Reach checks that the API server responds, and that its certificate is signed by the CA and currently valid. The
// function `now` returns the current time. Reach sends no request and needs no credential.
func Reach(ctx context.Context, to Server, now func() time.Time) error {
	server, err := url.Parse(to.URL)
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	port := server.Port()
	if port == "" {
		port = "443"
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(to.CA) {
		return errors.New("there is no certificate of the API server's CA")
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

// Trust makes this process, and later processes of the daemon, verify the API server with the CA bundle `ca`.
//
// If this bundle doesn't verify the API server yet, `settled` is false, and the caller must call Trust again. Until
// then, the daemon also trusts the previous bundle. Otherwise it might be unable to connect and to receive a correct
// bundle. Exception: if `next` is false, the host already has the bundle's revision. A later join may have installed a
// newer bundle, so Trust then changes nothing until `ca` verifies the API server. A second call with the same bundle
// changes nothing.
func (l *Client) Trust(ctx context.Context, ca []byte, next bool) (settled bool, err error) {
	server, err := readKubeconfig(l.options.Files, l.options.Kubeconfig)
	if err != nil || bytes.Equal(server.CA, ca) {
		return true, err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return false, errors.New("the bundle holds no CA of the API server")
	}
	settled = Reach(ctx, Server{server.URL, ca}, time.Now) == nil
	switch {
	case settled:
	case !next, bytes.Contains(server.CA, ca):
		return false, nil
	default:
		ca = slices.Concat(ca, server.CA)
	}
	// Write the kubeconfig last, because it marks the change as complete.
	if err = l.verifyBy(ca); err != nil {
		return false, err
	}
	return settled, Point(l.options.Files, l.options.Kubeconfig, Server{CA: ca})
}
