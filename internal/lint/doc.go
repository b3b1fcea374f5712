// Package lint finds the parts of a manifest that won't run on Windows nodes, and explains why, before the manifest
// is applied. Users and CI run it as a command; the operator does not use it.
//
// It reads manifests or live objects, finds every pod template in them, determines the operating system of each pod,
// and checks the pod against a table of rules:
//
//	manifests ─▶ objects ─▶ pod templates ─▶ operating system ─▶ rules ─▶ findings
//	                                                              ▲
//	                          cluster: builds, RuntimeClasses ────┤
//	                          registry: os.version of images ─────┘
//
// The rules are pure. Sources: https://kubernetes.io/docs/concepts/windows/intro/,
// https://kubernetes.io/docs/concepts/storage/windows-storage/, and the validation of pods whose
// spec.os.name is windows in the API server.
package lint
