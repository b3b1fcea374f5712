package port

import (
	"context"
	"net"
	"testing"
)

// keep takes many ports, and holds them until the test ends.
func keep(t *testing.T, take func(ctx context.Context) (Port, error)) map[string]bool {
	t.Helper()
	taken := map[string]bool{}
	for range 200 {
		p, err := take(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Release)
		if taken[p.Address()] {
			t.Fatalf("%s was assigned twice", p.Address())
		}
		taken[p.Address()] = true
	}
	return taken
}

func TestReservedPortsAreDistinctAndNobodyElses(t *testing.T) {
	t.Parallel()
	var config net.ListenConfig
	for address := range keep(t, Reserve) {
		listener, err := config.Listen(t.Context(), "tcp4", address)
		if err == nil {
			listener.Close()
			t.Fatalf("another program could listen on the reserved %s", address)
		}
	}
}

func TestHeldPortsAreDistinctAndOnlyTheirProgramListensThere(t *testing.T) {
	t.Parallel()
	held := keep(t, Hold)
	var config net.ListenConfig
	for range 1000 {
		listener, err := config.Listen(t.Context(), "tcp4", Loopback+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if held[listener.Addr().String()] {
			t.Fatalf("another listener got the reserved %s", listener.Addr())
		}
	}
	var dialer net.Dialer
	for address := range held {
		if conn, err := dialer.DialContext(t.Context(), "tcp4", address); err == nil {
			conn.Close()
			t.Fatalf("a connection to the reserved %s succeeded", address)
		}
		for range 2 { // a program may be restarted
			listener, err := config.Listen(t.Context(), "tcp4", address)
			if err != nil {
				t.Fatalf("the program for which the port is held can't listen: %v", err)
			}
			conn, err := dialer.DialContext(t.Context(), "tcp4", address)
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.Close()
			_ = listener.Close()
		}
	}
}
