// Package verbs implements the commands of the daemon's program: one for each verb that the operator runs over SSH, and
// one for the service.
//
// cmd/wicd runs these commands on real Windows, and the simulator runs them on a simulated machine. A verb reads its
// request and writes its answer through two files that SFTP transfers, or through the standard streams. The request is
// deleted, because it may contain credentials. Preflight changes nothing. If prepare, receive, bootstrap or handover
// is killed, it can be called again. Cleanup uses the state file. Without a state file, it removes only items that
// clearly belong to the operator.
package verbs
