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

// Where every cluster publishes which authorities sign its clients' certificates, for servers like
// this one that verify them:
// https://kubernetes.io/docs/tasks/extend-kubernetes/configure-aggregation-layer/.
const (
	authenticationNamespace = metav1.NamespaceSystem
	authenticationConfigMap = "extension-apiserver-authentication"
	authenticationField     = "client-ca-file"
)

// freshness is how old our knowledge of the authorities may be. A fleet that stages at once must
// not ask the API server with every connection, and a daemon that is refused for a rotation of a
// moment ago comes back later than this.
const freshness = 10 * time.Second

// readLimit is how long the API server may take to say them.
const readLimit = 5 * time.Second

// Authorities are the cluster's: those that sign clients' certificates.
type Authorities struct {
	client kubernetes.Interface
	now    func() time.Time

	reading singleflight.Group

	mu   sync.Mutex
	pool *x509.CertPool
	read time.Time
}

// NewAuthorities reads with a client that may get the one ConfigMap, and takes the time from now.
func NewAuthorities(client kubernetes.Interface, now func() time.Time) *Authorities {
	return &Authorities{client: client, now: now}
}

// Pool is for Options.Clients. A repeated call within ten seconds asks nobody, and those who ask at the same time share
// one answer, which takes five seconds at most. Nobody is let in while the authorities can't be read.
func (a *Authorities) Pool(ctx context.Context) (*x509.CertPool, error) {
	if pool := a.known(); pool != nil {
		return pool, nil
	}
	read, err, _ := a.reading.Do("", func() (any, error) { return a.ask(ctx) })
	pool, _ := read.(*x509.CertPool)
	return pool, err
}

// known is what was read a moment ago; else nil.
func (a *Authorities) known() *x509.CertPool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if age := a.now().Sub(a.read); age >= 0 && age < freshness {
		return a.pool
	}
	return nil
}

func (a *Authorities) ask(ctx context.Context) (*x509.CertPool, error) {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	published, err := a.client.CoreV1().ConfigMaps(authenticationNamespace).Get(ctx, authenticationConfigMap,
		metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading who signs clients' certificates: %w", err)
	}
	pool, err := poolOf(published)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pool, a.read = pool, a.now()
	return pool, nil
}

func poolOf(published *corev1.ConfigMap) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(published.Data[authenticationField])) {
		return nil, errors.New("reading who signs clients' certificates: no certificate is published")
	}
	return pool, nil
}
