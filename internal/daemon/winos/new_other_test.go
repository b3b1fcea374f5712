//go:build !windows

package winos_test

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func TestElsewhereEverythingIsUnsupported(t *testing.T) {
	t.Parallel()
	host, ctx := winos.New(), t.Context()
	_, list := host.Services.List(ctx)
	_, get := host.Services.Get(ctx, "x")
	_, open := host.Files.Open(`C:\x`)
	_, create := host.Files.Create(`C:\x`, winos.AccessInherit)
	_, stat := host.Files.Stat(`C:\x`)
	_, dir := host.Files.List(`C:\`)
	_, all := host.Environment.All(ctx)
	_, roots := host.Trust.List(ctx)
	_, facts := host.System.Facts(ctx)
	_, feature := host.System.Feature(ctx, "Containers")
	_, ip := host.Network.NodeIP(ctx)
	_, ports := host.Network.Listening(ctx)
	_, network := host.Network.HNSNetwork(ctx, "n")
	_, endpoint := host.Network.EnsureEndpoint(ctx, "n", "e", netip.Addr{})
	_, listener := host.Network.Listen(ctx, 1)
	_, conn := host.Network.Dial(ctx, netip.AddrPort{})
	_, addresses := host.Routes.Addresses(ctx)
	_, table := host.Routes.Table(ctx)
	_, route := host.Routes.Ensure(ctx, netip.Addr{})
	for what, err := range map[string]error{
		"Services.List": list, "Services.Get": get, "Services.Apply": host.Services.Apply(ctx, winos.ServiceConfig{}),
		"Services.Start": host.Services.Start(ctx, "x"), "Services.Stop": host.Services.Stop(ctx, "x"),
		"Services.Delete": host.Services.Delete(ctx, "x"),
		"Files.Open":      open, "Files.Create": create, "Files.Stat": stat, "Files.List": dir,
		"Files.Rename": host.Files.Rename(`C:\x`, `C:\y`),
		"Files.Remove": host.Files.Remove(`C:\x`), "Files.MkdirAll": host.Files.MkdirAll(`C:\x`, winos.AccessInherit),
		"Environment.All": all, "Environment.Set": host.Environment.Set(ctx, "A", "1"),
		"Environment.Unset": host.Environment.Unset(ctx, "A"),
		"Trust.List":        roots, "Trust.Add": host.Trust.Add(ctx, []byte{1}),
		"Trust.Remove": host.Trust.Remove(ctx, []byte{1}),
		"System.Facts": facts, "System.SetHostname": host.System.SetHostname(ctx, "a"), "System.Feature": feature,
		"System.EnableFeature":       host.System.EnableFeature(ctx, "Containers"),
		"System.Reboot":              host.System.Reboot(ctx, "why"),
		"System.ExcludeFromDefender": host.System.ExcludeFromDefender(ctx, `C:\x.exe`),
		"Network.NodeIP":             ip, "Network.Listening": ports, "Network.HNSNetwork": network,
		"Network.EnsureEndpoint":   endpoint,
		"Network.RemoveHNSNetwork": host.Network.RemoveHNSNetwork(ctx, "n"), "Network.Listen": listener,
		"Network.Dial":     conn,
		"Routes.Addresses": addresses, "Routes.Table": table, "Routes.Ensure": route, "Routes.Remove": host.Routes.Remove(ctx, netip.Addr{}),
		"Files.Restrict": host.Files.Restrict(`C:\x`), "Logs.Empty": host.Logs.Empty(`C:\x`),
	} {
		if !errors.Is(err, winos.ErrUnsupported) {
			t.Errorf("%s: %v; want ErrUnsupported", what, err)
		}
	}
	if time.Since(host.System.Now()).Abs() > time.Minute {
		t.Error("Now returns another time")
	}
}
