// Package verbs implements the commands of the daemon's program: one for each verb that the operator runs over SSH, and
// one for the service.
//
// cmd/wicd runs these commands on real Windows, and the simulator runs them on a simulated machine. A verb reads its
// request from a file and writes its answer to a file, and the operator transfers both files with SFTP. A verb can also
// use the standard streams. Each verb deletes its request, because a request may contain credentials. Preflight changes
// nothing, except that it may add a route to the metadata service of AWS. If prepare, receive, bootstrap or handover is
// killed, the operator can call it again. Cleanup removes the items that the state file lists. If the state file is
// missing, cleanup removes only items that clearly belong to the operator.
package verbs
