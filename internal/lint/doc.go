// Package lint answers what of a manifest will not run on Windows nodes, and why, before anyone
// applies it. People and CI ask it by way of a command; the operator does not.
//
// It reads manifests or live objects, finds every pod template in them, decides for which operating
// system a pod is meant, and holds the pod against a table of rules:
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
