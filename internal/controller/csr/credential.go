package csr

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// usedLife is longer than the lifetime of any bootstrap token.
	usedLife = 2 * time.Hour
	// usedCount is several times the number of hosts that join within that time.
	usedCount = 10000
)

// used remembers the key, in DER, that a bootstrap token was used for, from the approval until the cache shows it.
type used struct {
	mu   sync.Mutex
	keys *cache.LRUExpireCache
}

// claim records that a token is used for a key. It returns false if the token was used for another key.
func (u *used) claim(id string, key []byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if other, found := u.keys.Get(id); found {
		return bytes.Equal(other.([]byte), key)
	}
	u.keys.Add(id, key, usedLife)
	return true
}

// UsedTokens holds the bootstrap tokens that were used for a second key. They get no further certificate, so a host
// whose kubelet waits for a certificate needs another token. UsedTokens is safe for concurrent use.
type UsedTokens struct{ ids *cache.LRUExpireCache }

// NewUsedTokens returns an empty UsedTokens.
func NewUsedTokens() *UsedTokens { return &UsedTokens{cache.NewLRUExpireCache(usedCount)} }

// Has reports whether the token with this id was used for a second key. Tokens are forgotten after they have expired.
func (s *UsedTokens) Has(id string) bool {
	_, found := s.ids.Get(id)
	return found
}

// gatherCredential adds the owner of the request's bootstrap token, and the keys that the token was used for. The cache
// is enough: a token whose owner it does not show yet waits, and the operator remembers its own approvals.
func (r *Reconciler) gatherCredential(ctx context.Context, in *policy.CSRInput, claim policy.CSRClaim) error {
	id := policy.CredentialOf(in.CSR)
	if id == "" {
		return nil
	}
	if claim.Kind == policy.CSRHost {
		command, err := r.command(ctx, claim)
		in.JoinCredential = string(command.Data[contract.JoinCredentialField])
		in.JoinKey = string(command.Data[contract.JoinKeyField])
		return err
	}
	owners, err := r.instances(ctx, instancesByCredential, id)
	if err != nil {
		return err
	}
	for i := range owners {
		if !claim.IsOf(owners[i].UID, owners[i].Status.NodeName) {
			in.CredentialOwner = owners[i].Name
		}
	}
	if key, found := r.used.keys.Get(id); found {
		in.CredentialKeys = [][]byte{key.([]byte)}
	}
	approved := &certificatesv1.CertificateSigningRequestList{}
	if err = r.client.List(ctx, approved, client.MatchingFields{requestsByCredential: id}); err != nil {
		return fmt.Errorf("listing requests: %w", err)
	}
	for i := range approved.Items {
		if request, err := policy.ParseCSR(approved.Items[i].Spec.Request); err == nil {
			in.CredentialKeys = append(in.CredentialKeys, request.RawSubjectPublicKeyInfo)
		}
	}
	return nil
}

// command returns the Secret with the command of the host that a claim is about. It is empty if there is none.
func (r *Reconciler) command(ctx context.Context, claim policy.CSRClaim) (*corev1.Secret, error) {
	command := &corev1.Secret{}
	key := types.NamespacedName{Namespace: r.options.Namespace, Name: contract.JoinSecretPrefix + claim.UID}
	if err := client.IgnoreNotFound(r.client.Get(ctx, key, command)); err != nil {
		return command, fmt.Errorf("reading secret %s: %w", key.Name, err)
	}
	return command, nil
}

// bindKey records the key of a host's first request beside the token of its command, before the request is approved. So
// the record lives as long as the token, and no other key gets a certificate with it.
func (r *Reconciler) bindKey(ctx context.Context, claim policy.CSRClaim) error {
	command, err := r.command(ctx, claim)
	if err != nil || string(command.Data[contract.JoinKeyField]) != "" {
		return err // the decision has compared it
	}
	bound := command.DeepCopy()
	if bound.Data == nil {
		bound.Data = map[string][]byte{}
	}
	bound.Data[contract.JoinKeyField] = []byte(contract.Digest(claim.Request.RawSubjectPublicKeyInfo))
	return r.client.Patch(ctx, bound, client.MergeFromWithOptions(command, client.MergeFromWithOptimisticLock{}))
}
