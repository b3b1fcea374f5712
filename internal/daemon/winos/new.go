package winos

// New returns the machine that this process runs on. On systems other than Windows, every method except Now returns
// ErrUnsupported. So the daemon's program can be built and tried on these systems.
func New() Host { return newHost() }
