package reconcile

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kinds of the objects that are watched or read.
var (
	nodes      = resource("nodes")      //nolint:gochecknoglobals // a constant that Go can't express
	configMaps = resource("configmaps") //nolint:gochecknoglobals // a constant that Go can't express
	secrets    = resource("secrets")    //nolint:gochecknoglobals // a constant that Go can't express
)

func resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: name}
}
