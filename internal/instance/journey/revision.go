package journey

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Revisions reads the desired revision and earlier published revisions.
type Revisions struct {
	options *Options
	// compared caches comparisons, because hundreds of nodes change between the same two revisions. A revision's name
	// contains the digest of its content, so a result never changes.
	compared *lru.Cache
}

// mostCompared is the maximum number of cached comparisons. The nodes of a fleet have few revisions.
const mostCompared = 64

type change struct{ payload, restarts, drains bool }

// Of returns the desired state that a join applies to a host, with the cluster's facts. A first join applies the
// desired revision. A later join applies the host's own revision, because another revision would need a slot in the
// rollout budget. Exception: if the host's own revision is no longer published, the join applies the desired one. The
// error joins all problems that keep hosts from joining.
func (r *Revisions) Of(ctx context.Context, instance *v1alpha1.WindowsInstance) (blueprint.Desired, blueprint.Facts,
	error) {
	current, facts, err := r.options.Desired.Current(ctx)
	if err == nil {
		err = facts.MayJoin()
	}
	if err != nil {
		return current, facts, err
	}
	revision := JoinRevision(&instance.Status)
	if revision == "" || revision == current.Revision {
		return current, facts, nil
	}
	published, found, err := r.published(ctx, revision)
	if err != nil || !found {
		return current, facts, err
	}
	return published, facts, nil
}

// JoinRevision returns the revision that a join of the host applies, or "" for the desired revision.
func JoinRevision(status *v1alpha1.WindowsInstanceStatus) string {
	update := status.Upgrade()
	switch {
	case !status.Joined():
		return ""
	case update != nil && update.Step == v1alpha1.StepSwitching:
		return update.Revision
	}
	return status.DesiredRevision
}

// NotHeld returns the revision that a join applies because the host's own revision is no longer published, or "".
func (r *Revisions) NotHeld(ctx context.Context, instance *v1alpha1.WindowsInstance) string {
	desired, _, err := r.Of(ctx, instance)
	if err != nil || desired.Revision == JoinRevision(&instance.Status) ||
		desired.Revision == instance.Status.HeldRevision {
		return "" // after an error, the join waits until the revision can be read
	}
	return desired.Revision
}

// Named reads the published revision with this name.
func (r *Revisions) Named(ctx context.Context, revision string) (desired blueprint.Desired, found bool, err error) {
	if current, _, err := r.options.Desired.Current(ctx); err != nil || current.Revision == revision {
		return current, err == nil, err
	}
	return r.published(ctx, revision)
}

// The method `published` reads an earlier revision. A revision counts as missing if its content does not match its
// name, or if this release of the operator can't read all of its content.
func (r *Revisions) published(ctx context.Context, revision string) (desired blueprint.Desired, found bool, err error) {
	configMap, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	desired.Revision = revision
	key := types.NamespacedName{Namespace: r.options.Namespace, Name: desired.ConfigMapName()}
	if err = r.options.Client.Get(ctx, key, configMap); err != nil {
		return desired, false, absent("reading ConfigMap "+key.Name, err)
	}
	manifest, err := contract.ManifestFromConfigMap(configMap.Data)
	if err != nil || !contract.IsRevisionOfData(revision, configMap.Data) ||
		!contract.IsRevisionOf(revision, manifest) {
		return desired, false, nil //nolint:nilerr // the publisher corrects the revision
	}
	desired.Manifest = manifest
	if manifest.Confidential == "" {
		return desired, true, nil
	}
	key.Name = desired.SecretName()
	if err = r.options.Client.Get(ctx, key, secret); err != nil {
		return desired, false, absent("reading Secret "+key.Name, err)
	}
	desired.Confidential, err = contract.ParseConfidential(secret.Data[contract.ConfidentialField], manifest)
	return desired, err == nil, nil
}

func absent(doing string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Compare returns the update from a published revision to the desired one. If the old manifest can't be read,
// everything counts as changed.
func (r *Revisions) Compare(ctx context.Context, from string, to blueprint.Desired) *Update {
	update := &Update{Revision: to.Revision, Payload: true, Restarts: true, Drains: true}
	path := [2]string{from, to.Revision}
	found, known := r.compared.Get(path)
	if !known {
		var forGood bool
		if found, known, forGood = r.compare(ctx, from, to); known && forGood {
			r.compared.Add(path, found)
		}
	}
	if is, ok := found.(change); ok && known {
		update.Payload, update.Restarts, update.Drains = is.payload, is.restarts, is.drains
	}
	return update
}

// compare compares the manifests of two revisions. `known` is false if the earlier manifest can't be read. forGood is
// false if the earlier manifest doesn't match its revision's name, because the publisher will correct this manifest.
func (r *Revisions) compare(ctx context.Context, from string, to blueprint.Desired) (c change, known, forGood bool) {
	published := &corev1.ConfigMap{}
	if err := r.options.Client.Get(ctx, types.NamespacedName{Namespace: r.options.Namespace,
		Name: contract.ServicesConfigMapPrefix + from}, published); err != nil {
		return c, false, false
	}
	old, err := contract.ManifestFromConfigMap(published.Data)
	if err != nil {
		return c, false, false
	}
	had := map[string]bool{}
	for _, b := range Blobs(old) {
		had[b.Digest] = true
	}
	c.payload = ReleaseOf(from) != ReleaseOf(to.Revision) ||
		slices.ContainsFunc(Blobs(to.Manifest), func(b contract.Blob) bool { return !had[b.Digest] })
	c.restarts, c.drains = len(blueprint.Restarts(old, to.Manifest)) > 0, blueprint.Drains(old, to.Manifest)
	return c, true, contract.IsRevisionOfData(from, published.Data)
}

// ReleaseOf returns the operator's version in the name of a revision.
func ReleaseOf(revision string) string {
	if cut := strings.LastIndexByte(revision, '-'); cut >= 0 {
		return revision[:cut]
	}
	return revision
}

// Update is the difference between two revisions.
type Update struct {
	Revision string
	// Payload: the host may lack files, and must fetch them first. Restarts: services on which pods depend restart.
	// Drains: the node must be drained first. If any of them is true, the update waits for the rollout budget, so that
	// a new daemon first runs on few nodes.
	Payload, Restarts, Drains bool
}

// Waits reports whether the update waits for the rollout budget.
func (u *Update) Waits() bool { return u.Payload || u.Restarts || u.Drains }

// Blobs returns the digest and size of each blob that a manifest's files need. Each digest occurs once.
func Blobs(m contract.Manifest) []contract.Blob {
	seen := map[string]bool{}
	list := []contract.Blob{}
	for _, f := range m.Files {
		if f.Digest != "" && !seen[f.Digest] {
			seen[f.Digest] = true
			list = append(list, contract.Blob{Digest: f.Digest, Size: f.Size})
		}
	}
	return list
}
