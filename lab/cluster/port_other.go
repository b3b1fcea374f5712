//go:build !linux

package cluster

import (
	"context"
	"fmt"
	"net"
)

// reservePort finds a port that is free now; where it can't be kept, Start tries
// again with another when a component finds it taken.
func reservePort(ctx context.Context) (port, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", loopback+":0")
	if err != nil {
		return port{}, fmt.Errorf("finding a free port: %w", err)
	}
	defer listener.Close()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return port{}, fmt.Errorf("finding a free port: %v is no TCP address", listener.Addr())
	}
	return port{number: address.Port, release: func() {}}, nil
}
