package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

// pullSecret reads the cluster's credentials. A Secret without its key is handed on as something
// that is no pull secret. One that is not there is gone, for every cluster of OpenShift has one.
func (r *Reader) pullSecret(ctx context.Context, facts *blueprint.Facts) error {
	var object corev1.Secret
	key := client.ObjectKey{Namespace: contract.ConfigNamespace, Name: contract.PullSecret}
	found, err := optional(ctx, r.Cached, &object, key, namePullSecret)
	if facts.PullSecretGone = err == nil && !found; err != nil || !found {
		return err
	}
	if facts.PullSecret = object.Data[corev1.DockerConfigJsonKey]; len(facts.PullSecret) == 0 {
		facts.PullSecret = []byte(" ")
	}
	return nil
}

func (r *Reader) digestMirrors(ctx context.Context, facts *blueprint.Facts) error {
	var list configv1.ImageDigestMirrorSetList
	if err := listed(ctx, r.Cached, &list, "ImageDigestMirrorSets"); err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b configv1.ImageDigestMirrorSet) int { return cmp.Compare(a.Name, b.Name) })
	for _, object := range list.Items {
		for _, entry := range object.Spec.ImageDigestMirrors {
			facts.Mirrors = append(facts.Mirrors, mirror.Set{
				Object: "ImageDigestMirrorSet/" + object.Name, Kind: contract.PullByDigest,
				Source: entry.Source, Mirrors: texts(entry.Mirrors), Policy: mirror.Policy(entry.MirrorSourcePolicy),
			})
		}
	}
	return nil
}

// contentSourcePolicies reads what digest mirrors were called before there were
// ImageDigestMirrorSets. Linux nodes follow both.
func (r *Reader) contentSourcePolicies(ctx context.Context, facts *blueprint.Facts) error {
	var list operatorv1alpha1.ImageContentSourcePolicyList
	if err := listed(ctx, r.Cached, &list, "ImageContentSourcePolicies"); err != nil {
		return err
	}
	slices.SortFunc(list.Items,
		func(a, b operatorv1alpha1.ImageContentSourcePolicy) int { return cmp.Compare(a.Name, b.Name) })
	for _, object := range list.Items {
		for _, entry := range object.Spec.RepositoryDigestMirrors {
			facts.Mirrors = append(facts.Mirrors, mirror.Set{
				Object: "ImageContentSourcePolicy/" + object.Name, Kind: contract.PullByDigest,
				Source: entry.Source, Mirrors: entry.Mirrors,
			})
		}
	}
	return nil
}

func (r *Reader) tagMirrors(ctx context.Context, facts *blueprint.Facts) error {
	var list configv1.ImageTagMirrorSetList
	if err := listed(ctx, r.Cached, &list, "ImageTagMirrorSets"); err != nil {
		return err
	}
	slices.SortFunc(list.Items, func(a, b configv1.ImageTagMirrorSet) int { return cmp.Compare(a.Name, b.Name) })
	for _, object := range list.Items {
		for _, entry := range object.Spec.ImageTagMirrors {
			facts.Mirrors = append(facts.Mirrors, mirror.Set{
				Object: "ImageTagMirrorSet/" + object.Name, Kind: contract.PullByTag,
				Source: entry.Source, Mirrors: texts(entry.Mirrors), Policy: mirror.Policy(entry.MirrorSourcePolicy),
			})
		}
	}
	return nil
}

// registrySources reads which registries may be pulled from. Search registries are not read:
// containerd is only ever asked for full names.
func (r *Reader) registrySources(ctx context.Context, facts *blueprint.Facts) error {
	var object configv1.Image
	found, err := optional(ctx, r.Cached, &object, client.ObjectKey{Name: singleton}, nameImage)
	if err != nil || !found {
		return err
	}
	sources := object.Spec.RegistrySources
	facts.Registries = contract.RegistrySources{
		Blocked: sources.BlockedRegistries, Restricted: len(sources.AllowedRegistries) > 0,
		Allowed: sources.AllowedRegistries, Insecure: sources.InsecureRegistries,
	}
	return nil
}

// listed reads all objects of a kind that a cluster may lack.
func listed(ctx context.Context, reader client.Reader, list client.ObjectList, name string,
	options ...client.ListOption) error {
	err := reader.List(ctx, list, options...)
	switch {
	case err == nil, meta.IsNoMatchError(err):
		return nil
	case apierrors.IsForbidden(err):
		return incomplete("%s may not be read: give the operator the rights of its manifests again", name)
	}
	return fmt.Errorf("listing %s: %w", name, err)
}

func texts[T ~string](all []T) []string {
	out := make([]string, 0, len(all))
	for _, one := range all {
		out = append(out, string(one))
	}
	return out
}
