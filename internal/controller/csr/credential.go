package csr

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/policy"
)

const (
	// usedLife is longer than the lifetime of any bootstrap token.
	usedLife = 2 * time.Hour
	// usedCount is several times the number of hosts that join within usedLife.
	usedCount = 10000
)

// `used` maps a bootstrap token to the key (DER) that it was used for, because the cache may not show the approval yet.
type used struct {
	mu   sync.Mutex
	keys *cache.LRUExpireCache
}

// claim records that a token is used for a key. It returns false if the token was already used for a different key.
func (u *used) claim(id string, key []byte) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if other, found := u.keys.Get(id); found {
		return bytes.Equal(other.([]byte), key)
	}
	u.keys.Add(id, key, usedLife)
	return true
}

// UsedTokens contains the bootstrap tokens that were used for a second key. The operator approves no more requests with
// them: a host that still waits for a certificate needs a new token. UsedTokens is safe for concurrent use.
type UsedTokens struct{ ids *cache.LRUExpireCache }

// NewUsedTokens returns an empty UsedTokens.
func NewUsedTokens() *UsedTokens { return &UsedTokens{cache.NewLRUExpireCache(usedCount)} }

// Has reports whether the token with this id was used for a second key. UsedTokens forgets expired tokens.
func (s *UsedTokens) Has(id string) bool {
	_, found := s.ids.Get(id)
	return found
}

// gatherCredential adds the owner of the request's bootstrap token to the input, and the keys of earlier requests with
// this token. Both come from the cache. If the cache doesn't show the owner yet, the request waits. If the cache
// doesn't show an approval yet, the field `used` contains the key.
func (r *Reconciler) gatherCredential(ctx context.Context, in *policy.CSRInput,
	claim policy.CSRClaim) (err error) {
	id := policy.CredentialOf(in.CSR)
	if id == "" {
		return nil
	}
	if claim.Kind == policy.CSRHost {
		secret := contract.JoinSecretPrefix + claim.HostID
		if i := slices.IndexFunc(in.Instances, claim.IsOf); i >= 0 && in.Instances[i].Machine != nil {
			secret = contract.MachinesJoinSecret
			if in.Machine, err = r.options.Machine(ctx, in.Instances[i].Machine); err != nil {
				return err
			}
		}
		command := &corev1.Secret{} // stays empty if the Secret doesn't exist
		err = r.client.Get(ctx, types.NamespacedName{Namespace: r.options.Namespace, Name: secret}, command)
		in.JoinCredentials = strings.Fields(string(command.Data[contract.JoinCredentialField]))
		return client.IgnoreNotFound(err)
	}
	owners, err := r.instances(ctx, instancesByCredential, id)
	if err != nil {
		return err
	}
	for i := range owners {
		if claim.NodeName != owners[i].Status.NodeName {
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

// bindKey records the key of a host's first request in the status of the instance before the request is approved, so
// that no other key gets a certificate. If another key is already recorded, bindKey fails, and the operator decides
// about the request again.
func (r *Reconciler) bindKey(ctx context.Context, claim policy.CSRClaim, of *policy.CSRInstance) error {
	instance, key := &v1alpha1.WindowsInstance{}, contract.Digest(claim.Request.RawSubjectPublicKeyInfo)
	if of.HostKey == key {
		return nil
	}
	err := r.client.Get(ctx, types.NamespacedName{Namespace: of.Namespace, Name: of.Name}, instance)
	if err != nil {
		return err
	}
	if instance.UID != of.UID || instance.Status.HostKey != "" {
		return errors.New("a request for the same host was faster")
	}
	bound := instance.DeepCopy()
	bound.Status.HostKey = contract.HostKeyType + key
	return r.client.Status().Patch(ctx, bound,
		client.MergeFromWithOptions(instance, client.MergeFromWithOptimisticLock{}))
}
