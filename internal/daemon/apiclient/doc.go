// Package apiclient answers how the daemon talks to the API server: with which address and trust,
// as whom, how it watches one object, and how it annotates its own Node.
//
// The service opens one Client. Everything it needs is read through winos.Files, never from the
// process's own file system or environment, so that it works the same in a simulated machine.
// Bootstrap makes the key, handover stores the first certificate, the service renews it; a new
// certificate is taken over without a restart. Keys are made on the host and never leave it. Of the
// Node it changes annotations and nothing else.
package apiclient
