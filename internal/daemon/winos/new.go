package winos

// New gives the machine that this process runs on. On other systems than Windows every method
// answers ErrUnsupported (and Now the system's clock), so that the daemon's command builds and can
// be looked at there.
func New() Host { return newHost() }
