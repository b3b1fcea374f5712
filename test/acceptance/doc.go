// Package acceptance tests which rows of the acceptance list hold on a cluster.
//
// Each row has a function that tests it. The function gets a client of the cluster, the hosts that the run may use,
// and the disruptions that the user allows. wmco-e2e runs the rows on a user's cluster, and the end-to-end tests run
// them on the lab's cluster. The package uses only features of every cluster: the Kubernetes API, and the API server's
// proxy to kubelets. All objects that it creates have a label or a mark, so that this run or a later one can delete
// them. It changes nothing else unless the user allows it.
//
//	connect → check rights → clean up earlier runs → rows, in the order of their stages → clean up → report
package acceptance
