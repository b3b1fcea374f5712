// Package herald answers how administrators hear what the mirror resolver on this host went
// through: by events of the Node while it lasts, and by counters in a file that windows_exporter
// serves among the Node's metrics.
//
// The service has one. It reads what the resolver remembers, which is bounded, so nothing waits for
// it and nothing is lost for a while without the API server. It changes neither the Node nor how
// anything is pulled.
package herald
