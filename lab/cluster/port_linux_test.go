package cluster

import (
	"net"
	"testing"
)

func TestReservedPortsAreDistinctAndNobodyElses(t *testing.T) {
	t.Parallel()
	taken := map[int]bool{}
	for range 200 {
		p, err := reservePort(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer p.release()
		if taken[p.number] {
			t.Fatalf("port %d was given twice", p.number)
		}
		taken[p.number] = true
	}
	var config net.ListenConfig
	for number := range taken {
		listener, err := config.Listen(t.Context(), "tcp4", port{number: number}.address())
		if err == nil {
			listener.Close()
			t.Fatalf("port %d could be taken", number)
		}
	}
}
