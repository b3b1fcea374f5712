// Package plan answers what must hold on this host right now, and which steps, in which order, turn
// a host as it is into that.
//
// The reconcile loop and bootstrap compute it before they touch the host, and carry the steps out.
// It is pure but for reading facts of the host, its cloud and its Node; something that is not known
// yet is a Problem to wait for, never an empty string. What the cloud's metadata service says is
// not trusted: it is short, and a name, or it is refused.
//
// The order of steps is: rights that somebody loosened, certificates and the environment, then
// files (programs in use are moved aside, so that services run on meanwhile), then all stops in
// reverse order of the starts, then services that left the manifest go, then configurations and
// starts, and at last what else left. A service is thus down only for its own restart, and what is
// new is there before anything old is taken away.
package plan
