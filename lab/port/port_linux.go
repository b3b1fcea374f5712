package port

import (
	"context"
	"fmt"

	"golang.org/x/sys/unix"
)

// reserve finds a free port and reserves it. A socket stays bound to the port without listening. So the system doesn't
// give the port to another lab or to an outgoing connection (a benchmark has hundreds), even while the port's program
// is stopped.
func reserve(_ context.Context, by sharing) (Port, error) {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return Port{}, fmt.Errorf("reserving a port: %w", err)
	}
	number, err := bind(socket, by)
	if err != nil {
		unix.Close(socket)
		return Port{}, fmt.Errorf("reserving a port: %w", err)
	}
	return Port{Number: number, Kept: true, release: func() { unix.Close(socket) }}, nil
}

func bind(socket int, by sharing) (number int, err error) {
	option := unix.SO_REUSEPORT
	if by == byReuseAddress {
		option = unix.SO_REUSEADDR
	}
	if err := unix.SetsockoptInt(socket, unix.SOL_SOCKET, option, 1); err != nil {
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
