package acceptance

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/contract"
)

// manifests returns the rows about the services manifest.
func manifests() map[string]trial {
	return map[string]trial{
		"A12": {stage: stageNodes, try: manifestIsWhole,
			shows: "that the manifest exists, can be parsed and is immutable; " +
				"with --disrupt=rollout, also that it is restored"},
	}
}

// manifestIsWhole tests row A12: the services manifest must be valid and immutable. If the user allows it, the manifest
// is deleted, and the operator must restore it.
func manifestIsWhole(ctx context.Context, r *run) error {
	config, err := r.config(ctx)
	if err != nil {
		return err
	}
	if config.Status.DesiredRevision == "" {
		return errors.New("the WindowsMachineConfig names no revision")
	}
	published, err := publishedManifest(ctx, r, config.Status.DesiredRevision)
	if err != nil {
		return err
	}
	if !r.allows(DisruptRollout) {
		return nil
	}
	if err = r.client.Delete(ctx, published, client.Preconditions{UID: &published.UID}); err != nil {
		return fmt.Errorf("deleting the manifest: %w", err)
	}
	return r.await(ctx, r.Timeout, "restoring the manifest", func(ctx context.Context) (bool, string, error) {
		restored, err := publishedManifest(ctx, r, config.Status.DesiredRevision)
		return err == nil && restored.UID != published.UID, "", err
	})
}

// publishedManifest reads the published manifest of a revision, and checks it.
func publishedManifest(ctx context.Context, r *run, revision string) (*corev1.ConfigMap, error) {
	published := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: r.Namespace, Name: contract.ServicesConfigMapPrefix + revision}
	if err := r.client.Get(ctx, key, published); err != nil {
		return nil, fmt.Errorf("reading the manifest: %w", err)
	}
	if published.Immutable == nil || !*published.Immutable {
		return nil, fmt.Errorf("ConfigMap %s is not immutable", key.Name)
	}
	m, err := contract.ManifestFromConfigMap(published.Data)
	if err != nil {
		return nil, fmt.Errorf("reading ConfigMap %s: %w", key.Name, err)
	}
	if !contract.IsRevisionOfData(revision, published.Data) {
		return nil, fmt.Errorf("ConfigMap %s has content that doesn't match the hash in its name", key.Name)
	}
	r.note("%s has %d services and %d files", key.Name, len(m.Services), len(m.Files))
	return published, nil
}
