package lifecycle

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// revision is the desired state that a host is brought to over SSH, with the cluster's facts. A
// host that joins for the first time gets the one that is desired now; one that has joined gets the
// one that it is to have, whatever is desired meanwhile: to go to another takes its turn in the
// rollout. Where that one is not published any more there is nothing but the desired one.
func (w *Walker) revision(ctx context.Context, instance *v1alpha1.WindowsInstance) (blueprint.Desired, blueprint.Facts,
	error) {
	current, facts, err := w.Desired.Current(ctx)
	if err != nil {
		return current, facts, err
	}
	version := joinsAt(&instance.Status)
	if version == "" || version == current.Version {
		return current, facts, nil
	}
	published, found, err := w.published(ctx, version)
	if err != nil || !found {
		return current, facts, err
	}
	return published, facts, nil
}

// joinsAt is the version that a host is to be joined at; empty for the one that is desired now.
func joinsAt(status *v1alpha1.WindowsInstanceStatus) string {
	update := status.Update
	switch {
	case status.JoinedTime == nil:
		return ""
	case update != nil && update.OverSSH && update.Step == v1alpha1.StepSwitching:
		return update.Revision
	}
	return status.DesiredRevision
}

// published reads a version that is not the desired one. What is not exactly what the version's
// name stands for, or not all known to this release, counts as not there.
func (w *Walker) published(ctx context.Context, version string) (desired blueprint.Desired, found bool, err error) {
	configMap, secret := &corev1.ConfigMap{}, &corev1.Secret{}
	desired.Version = version
	key := types.NamespacedName{Namespace: w.Namespace, Name: desired.ConfigMapName()}
	if err = w.Client.Get(ctx, key, configMap); err != nil {
		return desired, false, absent("reading ConfigMap "+key.Name, err)
	}
	manifest, err := contract.ManifestFromConfigMap(configMap.Data)
	if err != nil || !contract.IsRevisionOfData(version, configMap.Data) || !contract.IsRevisionOf(version, manifest) {
		return desired, false, nil //nolint:nilerr // whoever publishes puts it right
	}
	desired.Manifest = manifest
	if manifest.Confidential == "" {
		return desired, true, nil
	}
	key.Name = desired.SecretName()
	if err = w.Client.Get(ctx, key, secret); err != nil {
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
