package reconcile

import "k8s.io/apimachinery/pkg/runtime/schema"

// Kinds of the objects that are watched or read.
var (
	// a constant that Go can't express
	nodes = schema.GroupVersionResource{Version: "v1", Resource: "nodes"} //nolint:gochecknoglobals
	// a constant that Go can't express
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"} //nolint:gochecknoglobals
	// a constant that Go can't express
	secrets = schema.GroupVersionResource{Version: "v1", Resource: "secrets"} //nolint:gochecknoglobals
)
