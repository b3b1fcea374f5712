package csr

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// usedLife is longer than any bootstrap token lives.
	usedLife = 2 * time.Hour
	// usedCount is several times as many hosts as join within that time.
	usedCount = 10000
)

// used remembers for which key a bootstrap token was used, from the approval until the cache shows
// it.
type used struct {
	mu   *sync.Mutex
	keys *cache.LRUExpireCache
}

func newUsed() used { return used{mu: &sync.Mutex{}, keys: cache.NewLRUExpireCache(usedCount)} }

// keysOf are the keys that got a certificate with a bootstrap token, in DER.
func (u used) keysOf(id string) [][]byte {
	if key, found := u.keys.Get(id); found {
		return [][]byte{key.([]byte)}
	}
	return nil
}

// claim notes that a token is used for a key; false when it was used for another.
func (u used) claim(id string, key []byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, other := range u.keysOf(id) {
		return bytes.Equal(other, key)
	}
	u.keys.Add(id, key, usedLife)
	return true
}

// Spent are the bootstrap tokens that were shown for another key than the one that got a certificate: they get no
// further one, and a host whose kubelet waits for that needs another token. It is for concurrent use.
type Spent struct{ ids *cache.LRUExpireCache }

// NewSpent makes an empty one.
func NewSpent() *Spent { return &Spent{cache.NewLRUExpireCache(usedCount)} }

// Has reports whether the token with this id is spent. It is forgotten when no such token lives any more.
func (s *Spent) Has(id string) bool {
	_, found := s.ids.Get(id)
	return found
}

// gatherCredential adds whose bootstrap token a request came with, and for which keys it was used.
// The cache is enough: a token whose owner it does not show yet waits, and approvals of our own are
// remembered beside it.
func (r *Reconciler) gatherCredential(ctx context.Context, in policy.CSRInput, claim policy.CSRClaim) (policy.CSRInput,
	error) {
	id := policy.CredentialOf(in.CSR)
	if id == "" {
		return in, nil
	}
	owners := &v1alpha1.WindowsInstanceList{}
	err := r.client.List(ctx, owners, client.InNamespace(r.options.Namespace),
		client.MatchingFields{instancesByCredential: id})
	if err != nil {
		return in, fmt.Errorf("listing instances: %w", err)
	}
	for i := range owners.Items {
		if owners.Items[i].Status.NodeName != claim.NodeName {
			in.CredentialOwner = owners.Items[i].Name
		}
	}
	in.CredentialKeys = r.used.keysOf(id)
	approved := &certificatesv1.CertificateSigningRequestList{}
	if err = r.client.List(ctx, approved, client.MatchingFields{requestsByCredential: id}); err != nil {
		return in, fmt.Errorf("listing requests: %w", err)
	}
	for i := range approved.Items {
		if request, err := policy.ParseCSR(approved.Items[i].Spec.Request); err == nil {
			in.CredentialKeys = append(in.CredentialKeys, request.RawSubjectPublicKeyInfo)
		}
	}
	return in, nil
}
