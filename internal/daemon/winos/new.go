package winos

// New returns the machine that this process runs on. On systems other than Windows, Now returns the system's clock,
// and every other method returns ErrUnsupported. So the daemon's command can be built and tried there.
func New() Host { return newHost() }
