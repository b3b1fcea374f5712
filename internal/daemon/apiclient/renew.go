package apiclient

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-logr/logr"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/loop"
)

// A certificate is renewed when a fraction of its lifetime has passed: renewAt minus a random part of up to
// renewJitter. The jitter prevents nodes that joined together from renewing together. The remaining lifetime is a
// reserve in case the host is off or the operator doesn't approve the request.
const (
	renewAt     = 0.70
	renewJitter = 0.10
)

// While a request is not signed yet, the pause between two checks grows from firstLook to slowestLook.
const (
	firstLook   = time.Second
	slowestLook = time.Minute
	// pause is the time from a failed attempt to the next attempt. restPause is the shortest time between renewals.
	// Without restPause, a host whose clock is days ahead would renew its certificate endlessly. If a certificate has a
	// short lifetime, both pauses are at most 1/pausePart of the lifetime.
	pause     = 10 * time.Minute
	restPause = time.Hour
	pausePart = 20
	// longestWait limits the time between checks of the renewal time, because timers stop while a host is suspended.
	longestWait = time.Hour
)

// Renewer renews a certificate before it expires.
type Renewer struct {
	Identity
	Client dynamic.Interface
	// Lifetime is the lifetime to request. If it is 0, the request asks for the current certificate's lifetime.
	Lifetime time.Duration
	// Renewed is called after a new certificate has been stored. If it returns an error, it is called again later.
	Renewed func() error
	Clock   clock.Clock
	// Spread returns a number in [0,1): the larger it is, the earlier this daemon renews. Default: random.
	Spread func() float64
}

// RenewalTime returns the time to renew a certificate. `spread` is in [0,1). 0 means no jitter.
func RenewalTime(leaf *x509.Certificate, spread float64) time.Time {
	life := leaf.NotAfter.Sub(leaf.NotBefore)
	return leaf.NotBefore.Add(time.Duration(float64(life) * (renewAt - spread*renewJitter)))
}

// pauseFor returns the pause `longest`. If the certificate has a short lifetime, the result is shorter.
func pauseFor(leaf *x509.Certificate, longest time.Duration) time.Duration {
	return min(longest, max(time.Second, leaf.NotAfter.Sub(leaf.NotBefore)/pausePart))
}

// Run renews the certificate when it is due, until ctx ends. If a renewal fails, Run logs the error and retries.
func (r *Renewer) Run(ctx context.Context) {
	log := logr.FromContextOrDiscard(ctx)
	spread := rand.Float64
	if r.Spread != nil {
		spread = r.Spread
	}
	early := spread()
	var last *x509.Certificate
	var look time.Duration
	loop.Run(ctx, r.Clock, nil, func(ctx context.Context) time.Duration {
		pair, err := r.LoadCertificate()
		if err != nil {
			log.Error(err, "the certificate can't be renewed")
			return pause
		}
		if last != nil && !pair.Leaf.Equal(last) {
			if err = r.Renewed(); err != nil {
				log.Error(err, "the new certificate is not used yet")
				return pauseFor(last, pause)
			}
			log.Info("the certificate was renewed")
			last = pair.Leaf
			return pauseFor(pair.Leaf, restPause)
		}
		last = pair.Leaf
		if due := RenewalTime(pair.Leaf, early).Sub(r.Clock.Now()); due > 0 {
			return min(due, longestWait)
		}
		if !r.Clock.Now().Before(pair.Leaf.NotAfter) {
			// The API server refuses an expired certificate, even for its renewal. The operator issues a new
			// certificate when it joins the host again.
			log.Info("the certificate has expired; the host keeps its last known state until the operator "+
				"issues another certificate", "expired", pair.Leaf.NotAfter)
			return pause
		}
		err = r.Obtain(ctx, cmp.Or(r.Lifetime, pair.Leaf.NotAfter.Sub(pair.Leaf.NotBefore)))
		if err == nil {
			look = 0
			return 0
		}
		if p, ok := contract.AsProblem(err); ok && p.Reason == contract.ReasonCertificatePending {
			look = loop.Grow(look, 2, firstLook, slowestLook)
			return look
		}
		if ctx.Err() == nil {
			log.Info("the certificate was not renewed", "detail", err.Error(), "expires", pair.Leaf.NotAfter)
		}
		return pauseFor(pair.Leaf, pause)
	})
}

// Obtain requests a certificate for the pending key and stores it. If the request is not signed yet, Obtain returns a
// Problem with ReasonCertificatePending. The next call then finds the existing request.
func (r *Renewer) Obtain(ctx context.Context, life time.Duration) error {
	key, err := r.PendingKey()
	if err != nil {
		return err
	}
	certificate, err := r.signed(ctx, key, life)
	if err == nil {
		err = r.StoreCertificate(certificate)
	}
	if p, ok := contract.AsProblem(err); ok && p.Reason != contract.ReasonCertificatePending {
		// This request will always fail, but a request with another key may succeed.
		return errors.Join(err, r.DropPendingKey())
	}
	return err // after a failed write, the next attempt finds the request by the same key
}

// requestName derives the name of the request from the key, so a repeated attempt finds the existing request.
func (i Identity) requestName(key *ecdsa.PrivateKey) (string, error) {
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", fmt.Errorf("encoding the public key: %w", err)
	}
	sum := sha256.Sum256(der)
	return i.Request + hex.EncodeToString(sum[:8]), nil
}

// `signed` returns the certificate for a key. If the API server has no request for the key, `signed` creates one.
func (r *Renewer) signed(ctx context.Context, key *ecdsa.PrivateKey, life time.Duration) ([]byte, error) {
	name, err := r.requestName(key)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errNoAnswer)
	defer cancel()
	requests := r.Client.Resource(schema.GroupVersionResource{Group: "certificates.k8s.io", Version: "v1",
		Resource: "certificatesigningrequests"})
	object, err := requests.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if object, err = r.newRequest(key, name, life); err != nil {
			return nil, err
		}
		object, err = requests.Create(ctx, object, metav1.CreateOptions{})
	}
	if err != nil {
		return nil, fmt.Errorf("submitting or reading certificate request %s: %w", name, err)
	}
	var csr certificatesv1.CertificateSigningRequest
	if err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &csr); err != nil {
		return nil, fmt.Errorf("decoding certificate request %s: %w", name, err)
	}
	for _, c := range csr.Status.Conditions {
		if c.Type == certificatesv1.CertificateDenied || c.Type == certificatesv1.CertificateFailed {
			return nil, contract.NewProblem(contract.ReasonCertificateDenied, "certificate request %s: %s: %s", name,
				c.Reason, c.Message)
		}
	}
	if len(csr.Status.Certificate) == 0 {
		return nil, contract.NewProblem(contract.ReasonCertificatePending, "certificate request %s is not signed yet",
			name)
	}
	return csr.Status.Certificate, nil
}

func (r *Renewer) newRequest(key *ecdsa.PrivateKey, name string,
	life time.Duration) (*unstructured.Unstructured, error) {
	request, err := r.NewRequest(key)
	if err != nil {
		return nil, err
	}
	seconds := int32(life.Seconds())
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&certificatesv1.CertificateSigningRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1", Kind: "CertificateSigningRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: request, SignerName: certificatesv1.KubeAPIServerClientSignerName, ExpirationSeconds: &seconds,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding certificate request %s: %w", name, err)
	}
	return &unstructured.Unstructured{Object: object}, nil
}
