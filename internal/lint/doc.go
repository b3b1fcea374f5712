// Package lint finds the parts of a manifest that won't run on Windows nodes, and explains why. Users and CI run it as
// a command before they apply the manifest. The operator does not use it.
//
// It reads manifests or live objects, and finds every pod template in them. Then it determines the operating system of
// each pod, and checks the pod against a table of rules:
//
//	manifests ─▶ objects ─▶ pod templates ─▶ operating system ─▶ rules ─▶ findings
//	                                                              ▲
//	                          cluster: builds, RuntimeClasses ────┤
//	                          registry: os.version of images ─────┘
//
// The rules send no requests. Their sources are https://kubernetes.io/docs/concepts/windows/intro/,
// https://kubernetes.io/docs/concepts/storage/windows-storage/, and the API server's validation of pods whose
// spec.os.name is windows.
package lint
