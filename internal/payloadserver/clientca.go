package payloadserver

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Where every cluster publishes which CAs sign its clients' certificates, for servers like
// this one that verify them:
// https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/.
const (
	authenticationNamespace = metav1.NamespaceSystem
	authenticationConfigMap = "extension-apiserver-authentication"
	authenticationField     = "client-ca-file"
)

// freshness is how old our knowledge of the CAs may be. A fleet that stages at once must
// not ask the API server with every connection, and a daemon that is refused for a rotation of a
// moment ago comes back later than this.
const freshness = 10 * time.Second

// readLimit is how long the API server may take to say them.
const readLimit = 5 * time.Second

// ClientCAs are the cluster's CAs that sign clients' certificates.
type ClientCAs struct {
	client kubernetes.Interface
	now    func() time.Time

	reading singleflight.Group

	mu   sync.Mutex
	pool *x509.CertPool
	read time.Time
}

// NewClientCAs reads with a client that may get the one ConfigMap, and takes the time from now.
func NewClientCAs(client kubernetes.Interface, now func() time.Time) *ClientCAs {
	return &ClientCAs{client: client, now: now}
}

// Pool is for Options.Clients. A repeated call within ten seconds asks nobody, and those who ask at the same time share
// one answer, which takes five seconds at most. Nobody is let in while the CAs can't be read.
func (c *ClientCAs) Pool(ctx context.Context) (*x509.CertPool, error) {
	if pool := c.known(); pool != nil {
		return pool, nil
	}
	read, err, _ := c.reading.Do("", func() (any, error) { return c.ask(ctx) })
	pool, _ := read.(*x509.CertPool)
	return pool, err
}

// known is what was read a moment ago; else nil.
func (c *ClientCAs) known() *x509.CertPool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := c.now().Sub(c.read); age >= 0 && age < freshness {
		return c.pool
	}
	return nil
}

func (c *ClientCAs) ask(ctx context.Context) (*x509.CertPool, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	published, err := c.client.CoreV1().ConfigMaps(authenticationNamespace).Get(ctx, authenticationConfigMap,
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading who signs clients' certificates: %w", err)
	}
	pool, err := poolOf(published)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool, c.read = pool, c.now()
	return pool, nil
}

func poolOf(published *corev1.ConfigMap) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(published.Data[authenticationField])) {
		return nil, errors.New("reading who signs clients' certificates: no certificate is published")
	}
	return pool, nil
}
