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

// reachTimeout is for how long the API server is waited for: name resolution, TCP and TLS together.
const reachTimeout = 10 * time.Second

// Reach tries whether the API server answers, with a certificate of the CA by some clock. It sends nothing and needs
// no credential.
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

// Trust has the API server be verified by another bundle from now on, also by the next daemon. As long as that does
// not verify it, what verified it before counts, too: else nobody could tell this daemon what is right. Repeating it
// changes nothing.
func (l *Client) Trust(ctx context.Context, ca []byte) error {
	server, err := readKubeconfig(l.files, l.kubeconfig)
	if err != nil || bytes.Equal(server.CA, ca) {
		return err
	}
	if !x509.NewCertPool().AppendCertsFromPEM(ca) {
		return errors.New("the bundle holds no certificate authority of the API server")
	}
	if Reach(ctx, Server{server.URL, ca}, time.Now) != nil {
		if bytes.Contains(server.CA, ca) {
			return nil
		}
		ca = slices.Concat(ca, server.CA)
	}
	if err = Point(l.files, []string{l.kubeconfig}, Server{CA: ca}); err != nil {
		return err
	}
	return l.verifyBy(ca)
}
