package sim_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestASocketCloses(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, m *sim.Machine){
		"when its process is killed": func(t *testing.T, m *sim.Machine) { noError(t, m.CrashService("server")) },
		"when its service stops": func(t *testing.T,
			m *sim.Machine) {
			noError(t, m.Host().Services.Stop(t.Context(), "server"))
		},
		"when the power is cut": func(_ *testing.T, m *sim.Machine) { m.PowerCut() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listens := make(chan net.Listener, 1)
			m := machine(t, sim.Options{Default: func(ctx context.Context, p *sim.Process) int {
				l, err := p.Host.Network.Listen(ctx, 9184)
				if err != nil {
					return 1
				}
				listens <- l
				p.Running()
				<-ctx.Done()
				return 0
			}})
			writeExe(t, m, `C:\tools\server.exe`)
			noError(t, m.Host().Services.Apply(t.Context(),
				winos.ServiceConfig{Name: "server", Command: `C:\tools\server.exe`}))
			noError(t, m.Host().Services.Start(t.Context(), "server"))
			l := <-listens
			conn, err := m.Host().Network.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:9184"))
			noError(t, err)
			noError(t, conn.Close())
			end(t, m)
			for {
				conn, err := l.Accept()
				if err != nil {
					break
				}
				noError(t, conn.Close())
			}
			if _, err = m.Host().Network.Dial(t.Context(), netip.MustParseAddrPort("127.0.0.1:9184")); err == nil {
				t.Error("the closed listener still answers")
			}
		})
	}
}

func TestMachinesOfOneProcessShareNoPort(t *testing.T) {
	t.Parallel()
	for _, address := range []netip.Addr{{}, netip.MustParseAddr("127.32.77.1"), netip.MustParseAddr("127.32.77.2")} {
		for range 2 {
			if address.IsValid() && address.As4()[3] == 1 {
				continue
			}
			m := machine(t, sim.Options{Address: address})
			l, err := m.Host().Network.Listen(t.Context(), 9184)
			noError(t, err)
			t.Cleanup(func() { _ = l.Close() })
			_, err = m.Host().Network.Listen(t.Context(), 9184)
			isError(t, err, winos.ErrInUse)
			if address.IsValid() {
				if got := l.Addr().String(); got != "127.32.77.2:9184" {
					t.Errorf("the listener has the address %s", got)
				}
				noError(t, l.Close())
			}
		}
	}
	m := machine(t, sim.Options{})
	m.SetForeignPort(9184, "other.exe")
	_, err := m.Host().Network.Listen(t.Context(), 9184)
	isError(t, err, winos.ErrInUse)
}

func TestTheMetadataServiceNeedsItsRoute(t *testing.T) {
	t.Parallel()
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "me") })
	m := machine(t, sim.Options{Metadata: handler, MetadataRouted: true,
		Costs: sim.Costs{ShutdownDelay: 10 * time.Millisecond}})
	ask := func() (string, error) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				return m.Host().Network.Dial(ctx, netip.MustParseAddrPort(address))
			}}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://169.254.169.254/x", nil)
		noError(t, err)
		response, err := client.Do(request)
		if err != nil {
			return "", err
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	reachable := func(want bool, when string) {
		t.Helper()
		if got, err := ask(); (err == nil && got == "me") != want {
			t.Errorf("%s: the answer is %q, %v", when, got, err)
		}
	}
	reachable(true, "at first")
	_, err := m.CreateHNSNetwork(winos.HNSNetwork{Name: "n", Subnet: netip.MustParsePrefix("10.1.0.0/24")})
	noError(t, err)
	reachable(false, "after a network was made")
	_, err = m.Host().Routes.Ensure(t.Context(), netip.MustParseAddr("169.254.169.254"))
	noError(t, err)
	reachable(true, "with a route")
	reboot(t, m)
	reachable(false, "after a reboot")
}
