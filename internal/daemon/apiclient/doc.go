// Package apiclient is the daemon's client of the API server. It chooses the address, the trusted CAs and the
// certificate, watches single objects, and annotates the daemon's own Node.
//
// The daemon's service opens one Client. The package reads all files through winos.Files, and reads no environment
// variables, so it works the same on a simulated machine. The command bootstrap creates the key, the command handover
// stores the first certificate, and the service renews the certificate. A new certificate needs no restart. Keys are
// created on the host and never leave it. In the cluster, the package changes only annotations of the Node, and creates
// certificate signing requests and tokens.
package apiclient
