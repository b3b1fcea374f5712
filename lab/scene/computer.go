package scene

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"

	"github.com/windows-nodes/wmco/lab/fleet"
)

// useComputers makes the fleet create its hosts with Options.Computer. It also passes the addresses of the API server
// and of the payload server, because programs on these hosts must be able to connect to them.
func (s *Scene) useComputers(options *fleet.Options) error {
	if s.options.Computer == nil {
		return nil
	}
	server, err := url.Parse(s.Cluster.URL)
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	address, err := netip.ParseAddrPort(server.Host)
	if err != nil {
		return fmt.Errorf("reading the API server's address: %w", err)
	}
	payloadServer, err := netip.ParseAddrPort(s.payloadServer)
	if err != nil {
		return fmt.Errorf("reading the payload server's address: %w", err)
	}
	options.Computer = func(ctx context.Context, hostname string, at netip.Addr) (fleet.Computer, error) {
		return s.options.Computer(ctx, hostname, at, []netip.AddrPort{address, payloadServer})
	}
	return nil
}
