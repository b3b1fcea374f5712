package payloadserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/singleflight"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Every cluster publishes the CAs of its clients' certificates in this ConfigMap, so that servers can verify
// clients: https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/.
const (
	authenticationConfigMap = "extension-apiserver-authentication"
	authenticationField     = "client-ca-file"
)

const (
	// freshness is the maximum age of the CAs. A fleet that stages at once must not cause a request for each
	// connection. A daemon that is refused because of a recent rotation tries again after a longer time.
	freshness = 10 * time.Second
	// readLimit bounds a request to the API server.
	readLimit = 5 * time.Second
)

// ClientCAs are the cluster's CAs that sign clients' certificates.
type ClientCAs struct {
	client kubernetes.Interface
	now    func() time.Time

	// reading runs one function at a time. Only this function uses pool and read.
	reading singleflight.Group
	pool    *x509.CertPool
	read    time.Time
}

// NewClientCAs returns ClientCAs that read with a client that may get this ConfigMap. now is the clock.
func NewClientCAs(client kubernetes.Interface, now func() time.Time) *ClientCAs {
	return &ClientCAs{client: client, now: now}
}

// Pool is for Options.Clients. If the CAs were read within the last ten seconds, it returns them. Concurrent
// callers share one request, which takes five seconds at most. While the CAs can't be read, every client is
// refused.
func (c *ClientCAs) Pool(ctx context.Context) (*x509.CertPool, error) {
	answer, err, _ := c.reading.Do("", func() (any, error) {
		if age := c.now().Sub(c.read); age >= 0 && age < freshness {
			return c.pool, nil
		}
		pool, err := c.ask(ctx)
		if err == nil {
			c.pool, c.read = pool, c.now()
		}
		return pool, err
	})
	pool, _ := answer.(*x509.CertPool)
	return pool, err
}

func (c *ClientCAs) ask(ctx context.Context) (*x509.CertPool, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	published, err := c.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, authenticationConfigMap,
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the CAs of clients' certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(published.Data[authenticationField])) {
		return nil, errors.New("reading the CAs of clients' certificates: no certificate is published")
	}
	return pool, nil
}
