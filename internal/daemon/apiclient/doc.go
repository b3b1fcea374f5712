// Package apiclient is the daemon's client of the API server: it chooses the address, the trusted CAs and the
// certificate, watches single objects, and annotates the daemon's own Node.
//
// The service opens one Client. All inputs are read through winos.Files, never from the process's own file system or
// environment, so that the package works the same on a simulated machine. Bootstrap creates the key, handover stores
// the first certificate, and the service renews it. A new certificate needs no restart. Keys are created on the host
// and never leave it. The package changes only annotations of the Node.
package apiclient
