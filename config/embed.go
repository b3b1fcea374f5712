package config

import "embed"

// Files are the manifests that the operator applies itself where OLM installed it, since OLM leaves
// them out: see package olm.
//
//go:embed rbac/*.yaml admission/*.yaml cluster-api/*.yaml manager/networkpolicy.yaml
//go:embed monitoring/networkpolicy.yaml runtimeclass/*.yaml workload/*.yaml
var Files embed.FS
