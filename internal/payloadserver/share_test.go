package payloadserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

func TestA55_ATransferKeepsUpWithTheLeastRate(t *testing.T) {
	t.Parallel()
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		after   time.Duration
		written int64
		want    time.Duration // from the beginning
	}{
		"the first piece has a minute":                       {0, 0, time.Minute},
		"a transfer that takes little ends":                  {50 * time.Second, 1 << 10, time.Minute + time.Second/64},
		"a quick one has a minute for each piece":            {10 * time.Second, 1 << 30, 70 * time.Second},
		"one at the least rate goes on for as long as it is": {time.Hour, 3600 * leastRate, time.Hour + time.Minute},
	} {
		if got := writeDeadline(began, began.Add(c.after), c.written).Sub(began); got != c.want {
			t.Errorf("%s: until %s, want %s", name, got, c.want)
		}
	}
}

// Whoever reaches the port can open connections and say nothing.
func TestA55_OneSourceDoesNotTakeAllConnections(t *testing.T) {
	t.Parallel()
	inner := &sources{}
	listener := newBounded(inner, 4*perSourceParts, failures())
	for n := range 4 {
		inner.from("10.0.0.66")
		if conn, err := listener.Accept(); err != nil || conn == nil {
			t.Fatalf("connection %d of the source: %v", n, err)
		}
	}
	inner.from("10.0.0.66") // one more than its part: a daemon behind that address, perhaps
	fifth, err := listener.Accept()
	if err != nil || listener.sources["10.0.0.66"] != 4 || inner.closed != 1 || fifth.(*placed).left {
		t.Fatalf("the source's oldest connection did not make room: %v, %d of it, %d closed", err,
			listener.sources["10.0.0.66"], inner.closed)
	}
	for e := listener.strangers.Front(); e != nil; e = listener.strangers.Front() {
		listener.keep(e.Value.(*placed), "win-1")
	}
	inner.from("10.0.0.66") // all of its part are daemons: it is closed, and the next one is served
	inner.from("10.0.0.1")
	conn, err := listener.Accept()
	if err != nil || host(conn) != "10.0.0.1" {
		t.Fatalf("another source was not served: %v %v", conn, err)
	}
	_ = conn.Close()
	if inner.closed != 3 || len(listener.sources) != 1 {
		t.Errorf("%d connections were closed, and %d sources are counted", inner.closed, len(listener.sources))
	}
}

// Who has many addresses may take all connections, but doesn't keep them: those of daemons stay, and one
// more finds room.
func TestA55_WhoShowsNoCertificateGivesWayToTheNext(t *testing.T) {
	t.Parallel()
	const each = 4
	inner, failed := &sources{}, failures()
	listener := newBounded(inner, each*perSourceParts, failed)
	var all []*placed
	for source := range perSourceParts {
		for range each {
			inner.from(fmt.Sprintf("10.0.0.%d", source))
			conn, err := listener.Accept()
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, conn.(*placed))
		}
	}
	for range 2 { // with its next request, too
		if !listener.keep(all[0], "win-0") {
			t.Error("the connection of a daemon does not stay")
		}
	}
	inner.from("10.0.0.99")
	conn, err := listener.Accept()
	if err != nil || host(conn) != "10.0.0.99" {
		t.Fatalf("a ninth source was not served: %v %v", conn, err)
	}
	for n, one := range all {
		if closed := one.Conn.(*sourced).closed; closed != (n == 1) {
			t.Errorf("connection %d is closed: %v; only the oldest without a certificate is to be", n, closed)
		}
	}
	_ = all[1].Close() // as net/http does when it finds it closed
	for n, one := range append(all[2:], conn.(*placed)) {
		listener.keep(one, fmt.Sprintf("win-%d", n))
	}
	inner.from("10.0.0.100") // all that are left are daemons'
	if conn, err = listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("one more than all was served: %v %v", conn, err)
	}
	if err = all[0].Close(); err != nil || listener.nodes["win-0"] != 1 {
		t.Errorf("%d connections are counted for its node: %v", listener.nodes["win-0"], err)
	}
	inner.from("10.0.0.101")
	if conn, err = listener.Accept(); err != nil || host(conn) != "10.0.0.101" {
		t.Errorf("the place of one that left was not given to the next: %v %v", conn, err)
	}
	var counted dto.Metric
	if err = failed.WithLabelValues(failedFull).Write(&counted); err != nil || counted.GetCounter().GetValue() != 2 {
		t.Errorf("%v closures were counted, %v", counted.GetCounter().GetValue(), err)
	}
}

func failures() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "failures"}, []string{"reason"})
}

// sources is a listener with connections from addresses of choice.
type sources struct {
	net.Listener
	next   []string
	closed int
}

func (s *sources) from(address string) { s.next = append(s.next, address) }

func (s *sources) Accept() (net.Conn, error) {
	if len(s.next) == 0 {
		return nil, net.ErrClosed
	}
	address := s.next[0]
	s.next = s.next[1:]
	return &sourced{from: s, address: address}, nil
}

type sourced struct {
	net.Conn
	from    *sources
	address string
	closed  bool
}

func (s *sourced) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(s.address), Port: 1} }

func (s *sourced) Close() error {
	s.from.closed++
	s.closed = true
	return nil
}

func TestA55_ConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	inner, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener := newBounded(inner, 1, failures())
	accepted := make(chan net.Conn)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := new(net.Dialer).DialContext(context.WithoutCancel(t.Context()), "tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	dial()
	first := <-accepted
	listener.keep(first.(*placed), "win-1")
	if _, err = dial().Read(make([]byte, 1)); err == nil {
		t.Error("a connection beyond the bound was served")
	}
	if err = first.Close(); err != nil {
		t.Error(err)
	}
	_ = first.Close() // as net/http may
	dial()
	second := <-accepted
	if err = second.Close(); err != nil {
		t.Error(err)
	}
	_ = inner.Close()
	if _, more := <-accepted; more {
		t.Error("a connection came after the end")
	}
}

// A machine may use any address of its IPv6 network.
func TestA55_ANetworkOfIPv6IsOneSource(t *testing.T) {
	t.Parallel()
	inner := &sources{}
	listener := newBounded(inner, 4*perSourceParts, failures())
	for n := range 4 {
		inner.from(fmt.Sprintf("2001:db8:0:1::%x", n))
		if conn, err := listener.Accept(); err != nil || conn == nil {
			t.Fatalf("connection %d of the network: %v", n, err)
		}
	}
	inner.from("2001:db8:0:1:ffff::1")
	inner.from("2001:db8:0:2::1")
	for _, want := range []string{"2001:db8:0:1::/64", "2001:db8:0:2::/64"} {
		if conn, err := listener.Accept(); err != nil || host(conn) != want || inner.closed != 1 {
			t.Errorf("%s was not served: %v %v, %d were closed", want, conn, err, inner.closed)
		}
	}
}
