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

// CacheByObject returns the manager's cache settings for the inputs, and for all ConfigMaps and Secrets in the
// operator's namespace. With these settings, the operator needs no right to list other objects. The caller adds the
// result to its own settings, which must not contain ConfigMaps or Secrets: a manager has only one cache for each type.
func CacheByObject(namespace string, inputs []cluster.Input) map[client.Object]cache.ByObject {
	configMaps, secrets := cache.ByObject{Namespaces: map[string]cache.Config{}},
		cache.ByObject{Namespaces: map[string]cache.Config{}}
	all := map[client.Object]cache.ByObject{
		&corev1.ConfigMap{}: configMaps,
		&corev1.Secret{}:    secrets,
		&rbacv1.Role{}: {Namespaces: map[string]cache.Config{
			namespace: {FieldSelector: named(contract.ServicesReaderRole)}}},
	}
	for _, input := range inputs {
		config := cache.Config{}
		if name := input.Object.GetName(); name != "" {
			config.FieldSelector = named(name)
		}
		switch input.Object.(type) {
		case *corev1.ConfigMap:
			configMaps.Namespaces[input.Object.GetNamespace()] = config
		case *corev1.Secret:
			secrets.Namespaces[input.Object.GetNamespace()] = config
		default:
			all[input.Object] = cache.ByObject{Field: config.FieldSelector}
		}
	}
	configMaps.Namespaces[namespace], secrets.Namespaces[namespace] = cache.Config{}, cache.Config{}
	return all
}

func named(name string) fields.Selector {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name)
}

// NewCache is a function for a manager's option NewCache. The cache ignores kinds that the cluster lacks. With the
// default cache, the operator would exit at its start, without reporting which kind is missing.
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
	return cluster.Served(mapper, kind)
}
