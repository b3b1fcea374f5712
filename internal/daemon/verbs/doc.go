// Package verbs answers how the daemon's program is called, and what each call does: a command for
// each verb that the operator runs over SSH, and one for the service.
//
// cmd/wicd gives it real Windows, the simulator a simulated machine; both get the same commands. A
// verb gets its request and leaves its answer through two files that SFTP carries, or through the
// standard streams; no request is kept, since it may hold credentials. Preflight looks and changes
// nothing; prepare, receive, bootstrap and handover may each die and be called again anywhere;
// cleanup goes by the state file, and by what is recognisably ours where there is none.
package verbs
