package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	operatorv1alpha1 "github.com/openshift/api/operator/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
)

func (r *Reader) pullSecret(ctx context.Context, facts *blueprint.Facts) (err error) {
	key := keyIn(contract.ConfigNamespace, contract.PullSecret)
	facts.PullSecret, err = orNone(lastOf(ctx, &r.common, facts, origin{r.Cached, key, namePullSecret}, credentials))
	return err
}

// credentials returns the credentials in a pull secret. If the Secret contains no credentials, the function returns a
// space. blueprint rejects the space as invalid, and keeps the published credentials.
func credentials(object *corev1.Secret) ([]byte, error) {
	if text := object.Data[corev1.DockerConfigJsonKey]; len(text) > 0 {
		return text, nil
	}
	return []byte(" "), nil
}

// mirrors adds all mirror sets of one kind to facts.Mirrors. The function `entries` returns an object's mirror sets.
func (r *Reader) mirrors(ctx context.Context, facts *blueprint.Facts, kind string, list client.ObjectList,
	entries func(client.Object) []mirror.Set) error {
	known, err := orNone(last(ctx, &r.common, facts, kind, func() (sets []mirror.Set, err error) {
		if err = listed(ctx, r.Cached, list, "objects of kind "+kind); err != nil {
			return nil, err
		}
		err = meta.EachListItem(list, func(item runtime.Object) error {
			if o, ok := item.(client.Object); ok {
				sets = append(sets, entries(o)...)
			}
			return nil
		})
		slices.SortStableFunc(sets, func(a, b mirror.Set) int { return strings.Compare(a.Object, b.Object) })
		return sets, err
	}))
	facts.Mirrors = append(facts.Mirrors, known...)
	return err
}

func (r *Reader) digestMirrors(ctx context.Context, facts *blueprint.Facts) error {
	return r.mirrors(ctx, facts, "ImageDigestMirrorSet", &configv1.ImageDigestMirrorSetList{},
		func(o client.Object) (sets []mirror.Set) {
			for _, entry := range o.(*configv1.ImageDigestMirrorSet).Spec.ImageDigestMirrors {
				sets = append(sets, mirror.Set{Object: "ImageDigestMirrorSet/" + o.GetName(),
					Kind:   contract.PullByDigest,
					Source: entry.Source, Mirrors: texts(entry.Mirrors),
					Policy: mirror.Policy(entry.MirrorSourcePolicy)})
			}
			return sets
		})
}

// contentSourcePolicies reads ImageContentSourcePolicies, which preceded ImageDigestMirrorSets. Linux nodes use both.
func (r *Reader) contentSourcePolicies(ctx context.Context, facts *blueprint.Facts) error {
	return r.mirrors(ctx, facts, "ImageContentSourcePolicy", &operatorv1alpha1.ImageContentSourcePolicyList{},
		func(o client.Object) (sets []mirror.Set) {
			for _, entry := range o.(*operatorv1alpha1.ImageContentSourcePolicy).Spec.RepositoryDigestMirrors {
				sets = append(sets, mirror.Set{Object: "ImageContentSourcePolicy/" + o.GetName(),
					Kind: contract.PullByDigest, Source: entry.Source, Mirrors: entry.Mirrors})
			}
			return sets
		})
}

func (r *Reader) tagMirrors(ctx context.Context, facts *blueprint.Facts) error {
	return r.mirrors(ctx, facts, "ImageTagMirrorSet", &configv1.ImageTagMirrorSetList{},
		func(o client.Object) (sets []mirror.Set) {
			for _, entry := range o.(*configv1.ImageTagMirrorSet).Spec.ImageTagMirrors {
				sets = append(sets, mirror.Set{Object: "ImageTagMirrorSet/" + o.GetName(), Kind: contract.PullByTag,
					Source: entry.Source, Mirrors: texts(entry.Mirrors),
					Policy: mirror.Policy(entry.MirrorSourcePolicy)})
			}
			return sets
		})
}

// The function `listed` lists the objects of a kind. If the cluster doesn't have the kind, the error is an absentError.
func listed(ctx context.Context, reader client.Reader, list client.ObjectList, name string,
	options ...client.ListOption) error {
	err := reader.List(ctx, list, options...)
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return absent("%s can't be listed: the cluster does not have this kind of object", name)
	case apierrors.IsForbidden(err):
		return incomplete("%s may not be read: apply the operator's manifests again to restore its rights", name)
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
