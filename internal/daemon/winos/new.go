package winos

// New returns the machine that this process runs on. On other systems than Windows, every method returns
// ErrUnsupported (and Now the system's clock), so that the daemon's command builds and can be tried there.
func New() Host { return newHost() }
