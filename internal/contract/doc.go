// Package contract defines the data that the operator and the daemon share: names of objects, labels and annotations,
// paths on a node, the services manifest, the messages of the daemon's verbs, and the numbered reasons.
//
// Every other package may import it. It imports no package of this module, and uses no client, network or clock.
package contract
