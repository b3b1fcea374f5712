// Package acceptance answers which rows of the acceptance list hold on a cluster.
//
// Each row is a function over a client of the cluster, the hosts that it may use and what it may
// disrupt. wmco-e2e runs them on a user's cluster, the end-to-end tests on the lab's. It uses only what
// every cluster has: the Kubernetes API, and what the API server passes on to kubelets. What it makes has
// a label or a mark by which it is removed, by this run or by a later one, and nothing else is changed
// unless the user allows it.
//
//	connect → may we? → what other runs left → rows, in the order of their stages → clean up → report
package acceptance
