package cluster

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// reservePort finds a free port and keeps it: a socket of our own stays bound to
// it, without listening, so that neither another lab nor an outgoing connection
// (hundreds, in a benchmark) is given the port, not even while the API server is
// down for a test. Components of the same user bind beside it with SO_REUSEPORT.
func reservePort(context.Context) (port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return port{}, fmt.Errorf("reserving a port: %w", err)
	}
	number, err := bindShared(socket)
	if err != nil {
		unix.Close(socket)
		return port{}, fmt.Errorf("reserving a port: %w", err)
	}
	return port{number: number, shared: true, release: func() { unix.Close(socket) }}, nil
}

func bindShared(socket int) (number int, err error) {
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, err
	}
	if err := unix.Bind(socket, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	bound, err := unix.Getsockname(socket)
	if err != nil {
		return 0, err
	}
	address, ok := bound.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("bound to %T", bound)
	}
	return address.Port, nil
}
