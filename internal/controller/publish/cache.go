package publish

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
)

// CacheByObject says how the manager must cache what is watched here, so that the named rights are enough. The caller adds it to its own.
func CacheByObject(namespace string, facts cluster.Source) map[client.Object]cache.ByObject {
	named := func(name string) fields.Selector { return fields.OneTermEqualSelector(metav1.ObjectNameField, name) }
	all := map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{namespace: {}}},
		&rbacv1.Role{}:      {Namespaces: map[string]cache.Config{namespace: {FieldSelector: named(contract.ServicesReaderRole)}}},
	}
	for _, input := range facts.Inputs() {
		all[input.Object] = cache.ByObject{Field: named(input.Object.GetName())}
	}
	return all
}

// NewCache is a manager's cache that does not mind kinds of objects that the cluster lacks: an ordinary one would end the operator at its start, and
// nobody would be told which kind it is. It is for the manager's option NewCache.
func NewCache(config *rest.Config, options cache.Options) (cache.Cache, error) {
	served := maps.Clone(options.ByObject)
	for object := range options.ByObject {
		ok, err := isServed(options.Mapper, options.Scheme, object)
		if err != nil {
			return nil, fmt.Errorf("asking the cluster for its kinds of objects: %w", err)
		}
		if !ok {
			delete(served, object)
		}
	}
	options.ByObject = served
	return cache.New(config, options)
}

func isServed(mapper meta.RESTMapper, scheme *runtime.Scheme, object client.Object) (bool, error) {
	kind, err := apiutil.GVKForObject(object, scheme)
	if err != nil {
		return false, err
	}
	_, err = mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if meta.IsNoMatchError(err) {
		return false, nil
	}
	return err == nil, err
}
