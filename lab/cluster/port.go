package cluster

import "fmt"

// loopback is where every server of the lab listens.
const loopback = "127.0.0.1"

// port is a free TCP port on the loopback address, held for one component as
// long as the cluster lives.
type port struct {
	number int
	// shared says that the port stays reserved while the component listens on
	// it, and over its restarts; the component must then bind with SO_REUSEPORT.
	shared  bool
	release func()
}

func (p port) address() string { return fmt.Sprintf("%s:%d", loopback, p.number) }

func (p port) url() string { return "https://" + p.address() }
