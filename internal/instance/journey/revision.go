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

// Revisions reads the desired state, and what was published before.
type Revisions struct {
	options *Options
	// compared remembers what it takes to come from one revision to another. Hundreds of nodes go the same way, and a
	// revision's name stands for its content, so that no answer ever changes.
	compared *lru.Cache
}

// mostCompared is how many comparisons are remembered: nodes of a fleet come from few revisions, and go to one.
const mostCompared = 64

// change is what it takes to come from one revision to another; see Update.
type change struct{ payload, restarts, drains bool }

// Of is the desired state that a host is brought to over SSH, with the cluster's facts. A
// host that joins for the first time gets the one that is desired now; one that has joined gets the
// one that it is to have, whatever is desired meanwhile: to go to another takes its turn in the
// rollout. Where that one is not published any more there is nothing but the desired one. The error joins what
// keeps hosts from joining.
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

// JoinRevision is the revision that a host is to be joined at; empty for the one that is desired now.
func JoinRevision(status *v1alpha1.WindowsInstanceStatus) string {
	update := status.Upgrade()
	switch {
	case status.JoinedTime == nil:
		return ""
	case update != nil && update.OverSSH && update.Step == v1alpha1.StepSwitching:
		return update.Revision
	}
	return status.DesiredRevision
}

// NotHeld is the revision that a join brings to a host instead of the one that it is to have, because
// that is nowhere to be had any more; empty where it is.
func (r *Revisions) NotHeld(ctx context.Context, instance *v1alpha1.WindowsInstance) string {
	desired, _, err := r.Of(ctx, instance)
	if err != nil || desired.Revision == JoinRevision(&instance.Status) ||
		desired.Revision == instance.Status.HeldRevision {
		return "" // where it can't be read, the join waits for it
	}
	return desired.Revision
}

// Named reads a revision that is desired, or was published before and still is.
func (r *Revisions) Named(ctx context.Context, revision string) (desired blueprint.Desired, found bool, err error) {
	if current, _, err := r.options.Desired.Current(ctx); err != nil || current.Revision == revision {
		return current, err == nil, err
	}
	return r.published(ctx, revision)
}

// published reads a revision that is not the desired one. What is not exactly what the revision's
// name stands for, or not all known to this release, counts as not there.
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
		return desired, false, nil //nolint:nilerr // whoever publishes puts it right
	}
	desired.Manifest = manifest
	if manifest.Confidential == "" {
		return desired, true, nil
	}
	key.Name = desired.SecretName()
	if err = r.options.Client.Get(ctx, key, secret); err != nil {
		return desired, false, absent("reading Secret "+key.Name, err)
	}
	data, err := contract.UnpackConfidential(secret.Data[contract.ConfidentialField])
	if err == nil {
		desired.Confidential, err = contract.ParseConfidential(data, manifest)
	}
	return desired, err == nil, nil
}

// absent is no error for what is not there.
func absent(doing string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}

// Compare says what it takes to come from a published revision to the desired one. Whatever may be
// missing counts for a revision whose manifest can't be read any more.
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

// compare reads the manifest of the revision that a node comes from. What one says that is not what
// its name stands for is not forGood: somebody will put it right.
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

// ReleaseOf is a revision without its manifest's digest: the operator's version.
func ReleaseOf(revision string) string {
	if cut := strings.LastIndexByte(revision, '-'); cut >= 0 {
		return revision[:cut]
	}
	return revision
}

// Update is what another revision asks for.
type Update struct {
	Revision string
	// From is the revision that held last on the node, and that it goes back to when the other one
	// does not hold; empty when none was ever verified.
	From string
	// Payload says that it brings files that the host may lack, so they are fetched first. Restarts
	// says that services on which pods depend are started anew; Drains that pods must leave before.
	// Each waits for the rollout budget: also a daemon that takes over from another is tried on few
	// nodes first.
	Payload, Restarts, Drains bool
}

// Waits says whether it waits for the rollout budget.
func (u *Update) Waits() bool { return u.Payload || u.Restarts || u.Drains }

// Blobs lists what a manifest's files hold, each digest once.
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
