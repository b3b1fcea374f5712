package tend

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/windows-nodes/wmco/internal/contract"
)

// choose brings the ledger's manifest to the one that the Node asks for, and says what is wrong with that one. The ledger keeps the
// manifest that was last valid, so a bad or missing one changes nothing on the host.
func (t *Tender) choose(ctx context.Context, node *unstructured.Unstructured) *contract.Problem {
	if node == nil {
		return nil
	}
	desired := node.GetAnnotations()[contract.DesiredVersionAnnotation]
	if desired == "" {
		return nil
	}
	t.follow(ctx, desired)
	object, known := t.manifest.get()
	if object == nil {
		if desired == t.Book.Version || !known {
			return nil
		}
		return contract.NewProblem(contract.ReasonManifestMissing, "there is no ConfigMap %s%s", contract.ServicesConfigMapPrefix, desired)
	}
	manifest, err := manifestOf(object)
	if err != nil {
		return problemOf(contract.ReasonManifestInvalid, fmt.Errorf("ConfigMap %s: %w", object.GetName(), err))
	}
	if desired == t.Book.Version && manifest.Digest() == t.Book.Manifest.Digest() {
		return nil
	}
	logr.FromContextOrDiscard(ctx).Info("a manifest is desired", "version", desired, "before", t.Book.Version)
	t.Book.Version, t.Book.Manifest = desired, manifest
	if err = t.Book.Save(); err != nil {
		return problemOf(contract.ReasonFileFailed, err)
	}
	return nil
}

// follow watches the ConfigMap of this version, and no other any more.
func (t *Tender) follow(ctx context.Context, version string) {
	if version == t.manifestVersion {
		return
	}
	t.stopManifest()
	ctx, t.stopManifest = context.WithCancel(ctx)
	t.manifestVersion = version
	t.manifest = t.watch(ctx, t.Client.Resource(configMaps).Namespace(t.Namespace), contract.ServicesConfigMapPrefix+version)
}

func manifestOf(object *unstructured.Unstructured) (contract.Manifest, error) {
	data, _, err := unstructured.NestedStringMap(object.Object, "data")
	if err != nil {
		return contract.Manifest{}, fmt.Errorf("reading its data: %w", err)
	}
	return contract.ManifestFromConfigMap(data)
}

func problemOf(reason contract.Reason, err error) *contract.Problem {
	if p, ok := contract.AsProblem(err); ok {
		return p
	}
	return contract.NewProblem(reason, "%v", err)
}
