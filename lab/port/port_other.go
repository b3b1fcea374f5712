//go:build !linux

package port

import (
	"context"
	"fmt"
	"net"
)

// reserve finds a port that is free now. On this system, it can't reserve the port.
func reserve(ctx context.Context, _ sharing) (Port, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp4", Loopback+":0")
	if err != nil {
		return Port{}, fmt.Errorf("finding a free port: %w", err)
	}
	defer listener.Close()
	address, ok := listener.Addr().(*net.TCPAddr)
	if !ok {
		return Port{}, fmt.Errorf("finding a free port: %v is no TCP address", listener.Addr())
	}
	return Port{Number: address.Port}, nil
}
