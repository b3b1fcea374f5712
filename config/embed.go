package config

import "embed"

// Files contains manifests. If OLM installed the operator, the operator itself applies those that OLM can't install:
// see package olm.
//
//go:embed rbac/*.yaml admission/*.yaml cluster-api/*.yaml manager/networkpolicy.yaml
//go:embed monitoring/networkpolicy.yaml runtimeclass/*.yaml workload/*.yaml
var Files embed.FS
