package publish

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// Marks on what we publish.
const (
	managedByLabel = "app.kubernetes.io/managed-by"
	// unusedAnnotation says since when nothing uses a version.
	unusedAnnotation = contract.Prefix + "unused-since"
)

// terminating is how long to wait for somebody else's finalizer.
const terminating = 2 * time.Second

// verdict is what must be done about the ConfigMap of a version.
type verdict string

const (
	keep    verdict = "keep"    // it is as it must be
	create  verdict = "create"  // it isn't there
	rewrite verdict = "rewrite" // it differs and can be changed in place, which leaves no gap
	replace verdict = "replace" // it differs and is immutable
	wait    verdict = "wait"    // it is being deleted
)

// judge compares what is there, or nil, with what must be.
func judge(found, want *corev1.ConfigMap) verdict {
	switch {
	case found == nil:
		return create
	case !found.DeletionTimestamp.IsZero():
		return wait
	case !maps.Equal(found.Data, want.Data) || len(found.BinaryData) > 0:
		if isImmutable(found) {
			return replace
		}
		return rewrite
	case !isImmutable(found) || found.Labels[managedByLabel] != want.Labels[managedByLabel]:
		return rewrite
	}
	return keep
}

func isImmutable(c *corev1.ConfigMap) bool { return c.Immutable != nil && *c.Immutable }

// manifestObject is a desired state as it is published.
func manifestObject(namespace string, desired blueprint.Desired) (*corev1.ConfigMap, error) {
	data, err := desired.Manifest.Data()
	if err != nil {
		return nil, err
	}
	immutable := true
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: desired.ConfigMapName(), Labels: map[string]string{managedByLabel: contract.OperatorServiceAccount},
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
	if err = p.client.Get(ctx, client.ObjectKeyFromObject(want), found); apierrors.IsNotFound(err) {
		found, err = nil, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading ConfigMap %s: %w", want.Name, err)
	}
	decision := judge(found, want)
	switch decision {
	case keep:
		return 0, nil
	case wait:
		logf.FromContext(ctx).V(1).Info("services manifest is being deleted by somebody", "configMap", want.Name)
		return terminating, nil
	case rewrite:
		want.ResourceVersion = found.ResourceVersion
		err = p.client.Update(ctx, want)
	case replace:
		if err = p.client.Delete(ctx, found, exactly(found)); client.IgnoreNotFound(err) == nil {
			err = p.client.Create(ctx, want)
		}
	case create:
		err = p.client.Create(ctx, want)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		logf.FromContext(ctx).V(1).Info("services manifest changed meanwhile", "configMap", want.Name)
		return time.Second, nil
	}
	if err != nil {
		return 0, fmt.Errorf("publishing ConfigMap %s (%s): %w", want.Name, decision, err)
	}
	logf.FromContext(ctx).Info("services manifest published", "configMap", want.Name, "how", string(decision))
	p.meters.published.WithLabelValues(string(decision)).Inc()
	p.tell.published(want, decision)
	return 0, nil
}

// exactly makes a deletion fail when the object isn't the one that was looked at.
func exactly(o client.Object) client.Preconditions {
	uid, version := o.GetUID(), o.GetResourceVersion()
	return client.Preconditions{UID: &uid, ResourceVersion: &version}
}

// contentName is what a version's name ends in when its content names it.
func contentName(name string) bool { return regexp.MustCompile(`-[0-9a-f]{10}$`).MatchString(name) }

// isForged says that a ConfigMap has the name of one of our versions and other content.
func isForged(c *corev1.ConfigMap) bool {
	if !contentName(c.Name) {
		return false
	}
	manifest, err := contract.ManifestFromConfigMap(c.Data)
	if err != nil || len(c.BinaryData) > 0 {
		return true
	}
	digest := manifest.Digest()
	return len(digest) < 10 || !strings.HasSuffix(c.Name, "-"+digest[:10])
}
