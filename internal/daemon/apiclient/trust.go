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

// Trust has the API server be verified by another bundle from now on, also by the next daemon. While that does not
// verify it, what verified it before counts, too, or nobody could tell this daemon what is right: it is not settled
// then, and this has to be called again. Without next, what is there alone counts meanwhile: the host has the bundle's
// revision already, and a join may have brought what is newer. Repeating it changes nothing.
func (l *Client) Trust(ctx context.Context, ca []byte, next bool) (settled bool, err error) {
	server, err := readKubeconfig(l.files, l.kubeconfig)
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
	// The kubeconfig comes last: it says that all is done.
	if err = l.verifyBy(ca); err != nil {
		return false, err
	}
	return settled, Point(l.files, []string{l.kubeconfig}, Server{CA: ca})
}
