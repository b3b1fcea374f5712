package sim_test

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
	"github.com/windows-nodes/wmco/test/winostest"
	"github.com/windows-nodes/wmco/test/winostest/order"
)

// testService does the same as the test service that the suite uses on real Windows.
func testService(ctx context.Context, p *sim.Process) int {
	orders, err := order.Parse(p.Args[1:])
	if err != nil || orders.Fail {
		return 1
	}
	if orders.Environment != "" {
		var lines strings.Builder
		for name, value := range p.Env {
			lines.WriteString(name + "=" + value + "\n")
		}
		if winos.WriteFile(p.Host.Files, orders.Environment, strings.NewReader(lines.String()),
			winos.AccessInherit) != nil {
			return 1
		}
	}
	p.Running()
	<-ctx.Done()
	if orders.Linger > 0 {
		p.Linger(orders.Linger)
	}
	return 0
}

func TestAMachineIsAWindowsHost(t *testing.T) {
	t.Parallel()
	winostest.Run(t, func(t *testing.T) winostest.Fixture {
		t.Helper()
		m := machine(t, sim.Options{
			DNSSuffix: "corp.example",
			Features:  map[string]winos.FeatureState{"Containers": winos.FeatureEnabled},
			Costs:     sim.Costs{ShutdownDelay: 10 * time.Millisecond},
			Default:   testService,
		})
		const scratch = `C:\scratch`
		noError(t, m.Host().Files.MkdirAll(scratch, winos.AccessInherit))
		return winostest.Fixture{
			Host:    m.Host(),
			Scratch: scratch,
			InstallService: func(t *testing.T, path string) {
				t.Helper()
				writeExe(t, m, path)
			},
			DisableService: func(t *testing.T, name string) {
				t.Helper()
				noError(t, m.DisableService(name))
			},
			Listen: func(*testing.T) int {
				m.SetForeignPort(4711, "other.exe")
				return 4711
			},
			CreateNetwork: func(_ *testing.T, network winos.HNSNetwork) error {
				_, err := m.AddHNSNetwork(network)
				return err
			},
			AppendAs: func(t *testing.T, path string) func(string) {
				t.Helper()
				f, err := m.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
				noError(t, err)
				t.Cleanup(func() { noError(t, f.Close()) })
				return func(line string) {
					t.Helper()
					_, err := f.Write([]byte(line))
					noError(t, err)
				}
			},
			MakeJunction: func(t *testing.T, path, to string) {
				t.Helper()
				noError(t, m.MakeJunction(path, to))
			},
			Reboot: func(t *testing.T) {
				t.Helper()
				reboot(t, m)
			},
		}
	})
}

func TestAMachineWithoutContainersHasNoHNS(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{
		Features: map[string]winos.FeatureState{"Containers": winos.FeatureAbsent},
		Costs:    sim.Costs{ShutdownDelay: 10 * time.Millisecond},
	})
	_, err := m.Host().Network.HNSNetwork(t.Context(), "x")
	isError(t, err, winos.ErrUnsupported)
	noError(t, m.Host().System.EnableFeature(t.Context(), "containers"))
	feature, err := m.Host().System.Feature(t.Context(), "Containers")
	noError(t, err)
	if feature != winos.FeaturePending {
		t.Errorf("the feature is %s before the reboot", feature)
	}
	reboot(t, m)
	_, err = m.Host().Network.HNSNetwork(t.Context(), "x")
	isError(t, err, winos.ErrNotFound)
}
