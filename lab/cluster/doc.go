// Package cluster answers the question "where is an API server to try this
// against?" with a real one: etcd, kube-apiserver and a controller manager,
// built from the modules that lab/controlplane pins and run as children of the
// calling process, with the authorizers and the signing that a real cluster has.
//
// The lab's commands, the end-to-end tests and the benchmarks use it:
//
//	lab, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
//	...
//	defer lab.Stop()
//
// It never schedules a pod and never approves a certificate request, it installs
// nothing that makes the cluster look like OpenShift (its caller does), and the
// operator and the daemon never import it.
package cluster
