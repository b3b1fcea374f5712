package publish

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// unusedAnnotation says since when nothing uses a revision.
const unusedAnnotation = contract.Prefix + "unused-since"

// terminating is how long to wait for somebody else's finalizer.
const terminating = 2 * time.Second

// verdict is what must be done about the ConfigMap or Secret of a revision.
type verdict string

const (
	keep    verdict = "keep"    // it is as it must be
	create  verdict = "create"  // it isn't there
	rewrite verdict = "rewrite" // it differs and can be changed in place, which leaves no gap
	replace verdict = "replace" // it differs and is immutable
	wait    verdict = "wait"    // it is being deleted
)

// state is what is there under the name of something that must be there.
type state struct {
	// deleting: somebody's finalizer holds it. same: it holds what it must. immutable and labelled:
	// it is marked as it must be.
	deleting, same, immutable, labelled bool
}

// judge says what to do about what is there, or nil.
func judge(found *state) verdict {
	switch {
	case found == nil:
		return create
	case found.deleting:
		return wait
	case !found.same:
		if found.immutable {
			return replace
		}
		return rewrite
	case !found.immutable || !found.labelled:
		return rewrite
	}
	return keep
}

func manifestState(found, want *corev1.ConfigMap) *state {
	return &state{
		deleting: !found.DeletionTimestamp.IsZero(), same: maps.Equal(found.Data, want.Data) &&
			len(found.BinaryData) == 0,
		immutable: isTrue(found.Immutable),
		labelled:  found.Labels[contract.ManagedByLabel] == want.Labels[contract.ManagedByLabel],
	}
}

func isTrue(b *bool) bool { return b != nil && *b }

func manifestObject(namespace string, desired blueprint.Desired) (*corev1.ConfigMap, error) {
	data, err := desired.Manifest.Data()
	if err != nil {
		return nil, err
	}
	immutable := true
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: desired.ConfigMapName(),
			Labels: map[string]string{contract.ManagedByLabel: contract.OperatorServiceAccount},
		},
		Immutable: &immutable,
		Data:      data,
	}, nil
}

func (p *publisher) publishManifest(ctx context.Context, desired blueprint.Desired) (again time.Duration, err error) {
	want, err := manifestObject(p.Namespace, desired)
	if err != nil {
		return 0, err
	}
	found := &corev1.ConfigMap{}
	err = p.client.Get(ctx, client.ObjectKeyFromObject(want), found)
	switch {
	case apierrors.IsNotFound(err):
		return p.write(ctx, create, found, want)
	case err != nil:
		return 0, fmt.Errorf("reading ConfigMap %s: %w", want.Name, err)
	}
	return p.write(ctx, judge(manifestState(found, want)), found, want)
}

// write carries a verdict out. With an error it answers after what time to come back, if that is known.
func (p *publisher) write(ctx context.Context, decision verdict, found, want client.Object) (again time.Duration,
	err error) {
	log := logf.FromContext(ctx).WithValues("object", want.GetName(), "type", fmt.Sprintf("%T", want))
	switch decision {
	case keep:
		return 0, nil
	case wait:
		log.V(1).Info("what is published is being deleted by somebody")
		return terminating, fmt.Errorf("publishing %T %s: it is being deleted, and has the finalizers %q", want,
			want.GetName(), found.GetFinalizers())
	case rewrite:
		want.SetResourceVersion(found.GetResourceVersion())
		err = p.client.Update(ctx, want)
	case replace:
		if err = p.client.Delete(ctx, found, exactly(found)); client.IgnoreNotFound(err) == nil {
			err = p.client.Create(ctx, want)
		}
	case create:
		err = p.client.Create(ctx, want)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		log.V(1).Info("what is published changed meanwhile")
		return time.Second, fmt.Errorf("publishing %T %s (%s): %w", want, want.GetName(), decision, err)
	}
	if err != nil {
		return 0, fmt.Errorf("publishing %T %s (%s): %w", want, want.GetName(), decision, err)
	}
	log.Info("published", "how", string(decision))
	p.meters.published.WithLabelValues(string(decision)).Inc()
	p.tell.published(want, decision)
	return 0, nil
}

// exactly makes a deletion fail when the object isn't the one that was looked at.
func exactly(o client.Object) client.Preconditions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

// contentName is what a revision's name ends in when its content names it.
func contentName(name string) bool { return regexp.MustCompile(`-[0-9a-f]{10}$`).MatchString(name) }

// isPublished reports whether an object has the name and the label of one that we published. The operator before us
// named its ConfigMaps by its version.
func isPublished(o client.Object) bool {
	return contentName(o.GetName()) && o.GetLabels()[contract.ManagedByLabel] == contract.OperatorServiceAccount
}

// isGenuine reports whether the name of a ConfigMap is that of its content. The data is compared as
// it was published, without parsing it: a newer release may have fields that this one lacks.
func isGenuine(c *corev1.ConfigMap) bool {
	return len(c.BinaryData) == 0 && contract.IsRevisionOfData(c.Name, c.Data)
}
