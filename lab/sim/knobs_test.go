package sim_test

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/lab/sim"
)

func TestKnobsTurnWhatTheyName(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		m := machine(t, sim.Options{Client: true, Features: map[string]winos.FeatureState{
			"Containers": winos.FeatureEnabled, "Hyper-V": winos.FeatureAbsent,
		}})
		ctx, h := t.Context(), m.Host()

		m.SetClockOffset(-48 * time.Hour)
		if off := time.Since(h.System.Now()); off != 48*time.Hour {
			t.Errorf("the clock differs by %v", off)
		}
		write(t, m, `C:\k\file`, "x")
		if info, err := h.Files.Stat(`C:\k\file`); err != nil || time.Since(info.ModTime) != 48*time.Hour {
			t.Errorf("the file has the modification time %v: %v", info.ModTime, err)
		}

		m.SetBuild(14393, 1)
		m.SetDiskFree(5 << 30)
		facts := factsOf(t, m)
		if facts.Build != 14393 || facts.UBR != 1 || facts.Server || facts.DiskFree != 5<<30 {
			t.Errorf("the facts of the machine are %+v", facts)
		}
		reboot(t, m)

		m.SetNoRoute(true)
		_, err := h.Network.NodeIP(ctx)
		isError(t, err, winos.ErrNotFound)

		m.SetHNSFault(broken)
		_, err = h.Network.HNSNetwork(ctx, "x")
		isError(t, err, broken)
		isError(t, h.Network.RemoveHNSNetwork(ctx, "x"), broken)
		_, err = m.CreateHNSNetwork(winos.HNSNetwork{Name: "x", Subnet: prefix("10.0.0.0/24")})
		isError(t, err, broken)

		m.SetFeatureFault(broken)
		isError(t, h.System.EnableFeature(ctx, "Hyper-V"), broken)
		m.SetFeatureFault(nil)
		m.SetCosts(sim.Costs{FeatureInstall: 3 * time.Minute})
		began := time.Now()
		noError(t, h.System.EnableFeature(ctx, "Hyper-V"))
		if took := time.Since(began); took != 3*time.Minute {
			t.Errorf("the feature took %v", took)
		}
		m.SetFeature("hyper-v", "")
		_, err = h.System.Feature(ctx, "Hyper-V")
		isError(t, err, winos.ErrNotFound)

		m.SetShell(sim.ShellPowerShell)
		if m.Shell() != sim.ShellPowerShell {
			t.Errorf("the shell is %s", m.Shell())
		}
		for range 2 {
			noError(t, h.System.ExcludeFromDefender(ctx, `C:\k\containerd.exe`))
			noError(t, h.System.ExcludeFromDefender(ctx, `c:\K\containerd.exe`))
		}
		if all := m.DefenderExclusions(); len(all) != 1 {
			t.Errorf("Defender's exclusions are %q", all)
		}
		if m.Kill(4711) == nil {
			t.Error("killing a process that does not exist succeeded")
		}
		isError(t, m.CrashService("nobody"), winos.ErrNotFound)
		isError(t, m.DisableService("nobody"), winos.ErrNotFound)
		_, err = m.HoldService("nobody")
		isError(t, err, winos.ErrNotFound)
	})
}

func TestAddressesOfASmallNetworkRunOut(t *testing.T) {
	t.Parallel()
	m := machine(t, sim.Options{})
	_, err := m.CreateHNSNetwork(winos.HNSNetwork{Name: "small", Subnet: prefix("10.0.0.0/29")})
	noError(t, err)
	seen := map[string]bool{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		address, err := m.Host().Network.EnsureEndpoint(t.Context(), "small", name, netip.Addr{})
		noError(t, err)
		seen[address.String()] = true
	}
	if len(seen) != 5 || seen["10.0.0.0"] || seen["10.0.0.1"] || seen["10.0.0.7"] {
		t.Errorf("the addresses are %v", seen)
	}
	if _, err := m.Host().Network.EnsureEndpoint(t.Context(), "small", "f", netip.Addr{}); err == nil {
		t.Error("an endpoint got an address although none is free")
	}
	again, err := m.CreateHNSNetwork(winos.HNSNetwork{Name: "small", Subnet: prefix("10.0.1.0/29")})
	noError(t, err)
	if all := m.HNSNetworks(); len(all) != 1 || all[0] != again {
		t.Errorf("the networks are %+v", all)
	}
	address, err := m.Host().Network.EnsureEndpoint(t.Context(), "small", "a", netip.Addr{})
	noError(t, err)
	if !again.Subnet.Contains(address) {
		t.Errorf("the endpoint in the new subnet has the address %v", address)
	}
}
