package sim_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestARebootKeepsWhatLastsAndDropsTheRest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Hostname: "OLD", Costs: sim.Costs{Off: time.Minute}})
		ctx, h := t.Context(), m.Host()
		install(t, m, "a", nil)
		noError(t, h.Services.Start(ctx, "a"))
		noError(t, h.Environment.Set(ctx, "PROXY", "x"))
		noError(t, h.Trust.Add(ctx, []byte{0x30, 0}))
		noError(t, h.System.SetHostname(ctx, "New-1"))
		m.SetFeature("Containers", winos.FeaturePending)
		m.SetFeature("Containers", winos.FeatureEnabled)
		network, err := m.CreateHNSNetwork(winos.HNSNetwork{Name: "net", Subnet: prefix("10.1.2.0/24")})
		noError(t, err)
		before, facts := m.Snapshot(), factsOf(t, m)
		noError(t, h.System.Reboot(ctx, "x"))
		noError(t, h.System.Reboot(ctx, "once more"))
		if _, err := h.Services.Get(ctx, "a"); err != nil {
			t.Errorf("the machine rebooted before it answered the request: %v", err)
		}
		sleep(30 * time.Second)
		_, err = h.Services.List(ctx)
		isError(t, err, sim.ErrOff)
		isError(t, h.Services.Start(ctx, "a"), sim.ErrOff)
		isError(t, h.System.Reboot(ctx, "x"), sim.ErrOff)
		_, err = h.Network.Listening(ctx)
		isError(t, err, sim.ErrOff)
		if code := m.Exec(ctx, sim.ExecRequest{CommandLine: "exit 0"}); code != -1 {
			t.Errorf("a command ran while the machine was off, with exit code %d", code)
		}
		_, err = m.WaitBoot(ctx)
		noError(t, err)
		sleep(time.Second)
		now := factsOf(t, m)
		if now.Hostname != "New-1" || now.BootID == facts.BootID || now.MachineID != facts.MachineID {
			t.Errorf("the facts were %+v, and are %+v", facts, now)
		}
		if diff := sim.Diff(before, m.Snapshot()); len(diff) > 0 {
			t.Errorf("the reboot changed %q", diff)
		}
		if again, err := h.Network.HNSNetwork(ctx, "net"); err != nil || again != network {
			t.Errorf("after the reboot, the network is %+v: %v", again, err)
		}
		expectState(t, m, "a", winos.ServiceRunning)
	})
}

func TestAShutdownAsksFirstAndKillsAfterFiveSeconds(t *testing.T) {
	var asked, ended time.Time
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Default: func(ctx context.Context, p *sim.Process) int {
			p.Running()
			<-ctx.Done()
			asked = time.Now()
			for p.Host.Environment.Set(context.WithoutCancel(ctx), "STILL", "here") == nil {
				wait := time.NewTimer(time.Second)
				<-wait.C
			}
			ended = time.Now()
			return 0
		}})
		install(t, m, "a", nil)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		reboot(t, m)
		if took := ended.Sub(asked); took < 5*time.Second || took > 6*time.Second {
			t.Errorf("the shutdown took %v", took)
		}
	})
}

func TestAPowerCutLeavesWhatWasWrittenAndComesBackOnRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		boot, err := m.WaitBoot(t.Context())
		noError(t, err)
		install(t, m, "a", nil)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		m.PowerCut()
		m.PowerCut()
		<-boot.Down
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		_, err = m.WaitBoot(ctx)
		isError(t, err, context.DeadlineExceeded)
		m.PowerOn()
		m.PowerOn()
		sleep(time.Second)
		expectState(t, m, "a", winos.ServiceRunning)
	})
}

func TestAMachineThatIsHeldOffNeverComesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{})
		m.HoldOff(true)
		noError(t, m.Host().System.Reboot(t.Context(), "x"))
		sleep(time.Hour)
		_, err := m.Host().Services.List(t.Context())
		isError(t, err, sim.ErrOff)
		m.PowerOn()
		_, err = m.Host().Services.List(t.Context())
		noError(t, err)
	})
}

func TestAClosedMachineStaysClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Costs: sim.Costs{Off: time.Hour}})
		install(t, m, "a", nil)
		noError(t, m.Host().Services.Start(t.Context(), "a"))
		noError(t, m.Host().System.Reboot(t.Context(), "x"))
		sleep(time.Minute)
		began := time.Now()
		noError(t, m.Close())
		noError(t, m.Close())
		if took := time.Since(began); took > 0 {
			t.Errorf("closing took %v", took)
		}
		_, err := m.WaitBoot(t.Context())
		isError(t, err, sim.ErrClosed)
		m.PowerOn()
		_, err = m.Host().Services.List(t.Context())
		isError(t, err, sim.ErrOff)
	})
}

func TestAMachineIsRefusedThatWindowsWouldRefuse(t *testing.T) {
	t.Parallel()
	for name, options := range map[string]sim.Options{
		"an IPv6 address":    {Address: prefix("fd00::1/64").Addr()},
		"an odd user":        {User: `domain\user`},
		"a long host name":   {Hostname: strings.Repeat("x", 64)},
		"a dotted host name": {Hostname: "a.example.com"},
	} {
		if m, err := sim.New(options); err == nil {
			t.Errorf("the invalid host name %s was accepted", name)
			noError(t, m.Close())
		}
	}
}
