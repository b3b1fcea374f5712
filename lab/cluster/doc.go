// Package cluster runs a real Kubernetes control plane: etcd, kube-apiserver and a controller manager. They are built
// from the modules that lab/controlplane pins, and run as child processes with the authorizers and the signing of a
// real cluster.
//
// The commands of the lab, the end-to-end tests and the benchmarks use it:
//
//	lab, err := cluster.Start(ctx, cluster.Options{Progress: os.Stderr})
//	...
//	defer lab.Stop()
//
// The cluster never schedules a pod and never approves a certificate request. The package installs no objects of
// OpenShift: its callers do this. The operator and the daemon never import the package.
package cluster
