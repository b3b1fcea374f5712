package winos_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Microsoft/hcsshim"
	"github.com/Microsoft/hcsshim/hcn"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/test/winostest"
	"github.com/windows-nodes/wmco/test/winostest/order"
)

// TestConformance changes the machine that it runs on, and then reverts its changes. It changes services, variables,
// certificates and files whose names begin with wmcotest. It needs administrator rights. It does not reboot the
// machine, and does not change its host name or features.
func TestConformance(t *testing.T) {
	winostest.Run(t, func(t *testing.T) winostest.Fixture {
		t.Helper()
		fixture := winostest.Fixture{Host: winos.New(), Scratch: newDir(t), InstallService: installService,
			DisableService: disableService, Listen: listen, AppendAs: appendAs, MakeJunction: makeJunction}
		if onWine() {
			fixture.Cannot = wineCannot()
			fixture.CreateNetwork = createNetwork
		}
		return fixture
	})
}

// createNetwork creates an HNS network in the HNS replacement of the lab's Wine hosts. On Windows, the network would
// take over a network card. For a network without a VNI, createNetwork uses the older interface.
func createNetwork(t *testing.T, network winos.HNSNetwork) error {
	t.Helper()
	gateway := network.Subnet.Masked().Addr().Next().String()
	if network.VNI != 0 {
		return createOverlay(network, gateway)
	}
	_, err := (&hcsshim.HNSNetwork{Name: network.Name, Type: "Overlay", Subnets: []hcsshim.Subnet{{
		AddressPrefix: network.Subnet.String(), GatewayAddress: gateway}}}).Create()
	return err
}

// createOverlay makes the same calls as flanneld: for flanneld's own network, and for the part of another node.
func createOverlay(network winos.HNSNetwork, gateway string) error {
	if err := hcn.RemoteSubnetSupported(); err != nil {
		return err
	}
	made, err := (&hcn.HostComputeNetwork{Name: network.Name, Type: hcn.Overlay, Flags: hcn.EnableNonPersistent,
		SchemaVersion: hcn.V2SchemaVersion(), Ipams: []hcn.Ipam{{Type: "Static", Subnets: []hcn.Subnet{{
			IpAddressPrefix: network.Subnet.String(),
			Routes:          []hcn.Route{{NextHop: gateway, DestinationPrefix: "0.0.0.0/0"}},
			Policies: []json.RawMessage{raw(hcn.SubnetPolicy{Type: hcn.VSID,
				Settings: raw(hcn.VsidPolicySetting{IsolationId: network.VNI})})},
		}}}}}).Create()
	if err != nil {
		return err
	}
	if made, err = hcn.GetNetworkByID(made.Id); err != nil {
		return err
	}
	if err = expectPolicies(made.Policies); err != nil {
		return err
	}
	other := hcn.PolicyNetworkRequest{Policies: []hcn.NetworkPolicy{{Type: hcn.RemoteSubnetRoute,
		Settings: raw(hcn.RemoteSubnetRoutePolicySetting{IsolationId: uint16(min(network.VNI, 1<<16-1)),
			ProviderAddress: "10.0.0.99", DestinationPrefix: "10.244.99.0/24",
			DistributedRouterMacAddress: "00:15:5d:00:00:01"})}}}
	return errors.Join(made.AddPolicy(other), made.RemovePolicy(other), made.AddPolicy(hcn.PolicyNetworkRequest{
		Policies: []hcn.NetworkPolicy{{Type: hcn.HostRoute, Settings: raw(struct{}{})}}}))
}

// expectPolicies reads the same data of a network as flanneld: the host's address, and the address of the distributed
// router.
func expectPolicies(policies []hcn.NetworkPolicy) error {
	var provider hcn.ProviderAddressEndpointPolicySetting
	var router hcn.DrMacAddressNetworkPolicySetting
	for _, policy := range policies {
		var err error
		switch policy.Type {
		case hcn.ProviderAddress:
			err = json.Unmarshal(policy.Settings, &provider)
		case hcn.DrMacAddress:
			err = json.Unmarshal(policy.Settings, &router)
		default:
		}
		if err != nil {
			return err
		}
	}
	_, err := netip.ParseAddr(provider.ProviderAddress)
	_, errRouter := net.ParseMAC(router.Address)
	return errors.Join(err, errRouter)
}

// raw encodes a part of an HNS document.
func raw(object any) json.RawMessage {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err) // all types come from Microsoft's package
	}
	return text
}

// overlay is an argument of the test program. If it is the first argument, the program creates a network like flanneld,
// and then ends. The network has a name, a subnet and VNI 4096.
const overlay = "overlay"

// HNS owns the network, so the network must still exist after flanneld or the daemon has ended.
func TestAnOverlayOutlivesTheProcessThatMadeIt(t *testing.T) {
	if !onWine() {
		t.Skip("on Windows this test would take over a network card")
	}
	if why, cannot := wineCannot()[winostest.HNS]; cannot {
		t.Skip(why)
	}
	path := newDir(t) + `\makes.exe`
	installService(t, path)
	const name, subnet = "wmcotest-overlay.4096", "10.244.7.0/24"
	network := winos.New().Network
	t.Cleanup(func() {
		if err := network.RemoveHNSNetwork(context.WithoutCancel(t.Context()), name); err != nil {
			t.Error(err)
		}
	})
	if output, err := exec.CommandContext(t.Context(), path, overlay, name, subnet).CombinedOutput(); err != nil {
		t.Fatalf("creating the network: %v\n%s", err, output)
	}
	found, err := network.HNSNetwork(t.Context(), name)
	if err != nil || found.VNI != 4096 || found.Subnet.String() != subnet || !found.ManagementIP.Is4() {
		t.Errorf("the network is %+v: %v", found, err)
	}
	address, err := network.EnsureEndpoint(t.Context(), name, "VIPEndpoint", netip.Addr{})
	if err != nil || !found.Subnet.Contains(address) {
		t.Errorf("its endpoint has %v: %v", address, err)
	}
	if err = exec.CommandContext(t.Context(), path, overlay, name, subnet).Run(); err == nil {
		t.Error("another process creates the network again")
	}
	if again, err := network.HNSNetwork(t.Context(), name); err != nil || again != found {
		t.Errorf("the network is %+v, before it was %+v: %v", again, found, err)
	}
}

// wineCannot returns what Wine 8 does not support. Wine has no HNS either, but the lab's hosts have a replacement for
// HNS.
func wineCannot() map[winostest.Ability]string {
	cannot := map[winostest.Ability]string{
		winostest.CircularRefused: "its service manager takes circles",
		winostest.Recovery:        "its service manager takes recovery actions and never acts on them",
		winostest.ServiceEnvironment: "its service manager ignores a service's own variables, and knows the " +
			"system's as they were at boot",
		winostest.CaseInsensitive: "a rename that only changes case does nothing",
		winostest.Junctions:       "it knows none",
		winostest.Features:        "it has no DISM API",
		winostest.Routing:         "its IP helper has no functions that change routes",
	}
	if windows.NewLazySystemDLL("vmcompute.dll").Load() != nil {
		cannot[winostest.HNS] = "it has no host network service, and this is none of the lab's hosts"
	}
	return cannot
}

// onWine reports whether the tests run on Wine, which lacks parts of Windows.
func onWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

// testSuffix is the end of a test binary's name. Under any other name, the binary is the test service.
const testSuffix = ".test.exe"

func TestMain(m *testing.M) {
	if !strings.HasSuffix(strings.ToLower(os.Args[0]), testSuffix) {
		if err := serve(os.Args[1:]); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// installService copies the test binary as the program of the test service.
func installService(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(strings.ToLower(self), testSuffix) || strings.HasSuffix(strings.ToLower(path), testSuffix) {
		t.Fatalf("%s can't be distinguished from the test service %s", filepath.Base(self), path)
	}
	exe, err := os.Open(self)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = exe.Close() }()
	var content io.Reader = exe
	if err := winos.WriteFile(winos.New().Files, path, content, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
}

// disableService changes only the start type.
func disableService(t *testing.T, name string) {
	t.Helper()
	scm, err := windows.OpenSCManager(nil, nil, windows.SC_MANAGER_CONNECT)
	if err != nil {
		t.Fatal(err)
	}
	service, err := windows.OpenService(scm, windows.StringToUTF16Ptr(name), windows.SERVICE_CHANGE_CONFIG)
	if err == nil {
		err = errors.Join(windows.ChangeServiceConfig(service, windows.SERVICE_NO_CHANGE, windows.SERVICE_DISABLED,
			windows.SERVICE_NO_CHANGE, nil, nil, nil, nil, nil, nil, nil), windows.CloseServiceHandle(service))
	}
	if err = errors.Join(err, windows.CloseServiceHandle(scm)); err != nil {
		t.Fatal(err)
	}
}

func serve(args []string) error {
	if len(args) == 3 && args[0] == overlay {
		subnet, err := netip.ParsePrefix(args[2])
		if err != nil {
			return err
		}
		return createOverlay(winos.HNSNetwork{Name: args[1], Subnet: subnet, VNI: 4096},
			subnet.Masked().Addr().Next().String())
	}
	switch strings.Join(args, " ") {
	case stay:
		<-time.After(time.Hour)
		return nil
	case hang:
		return svc.Run("", service{hangs: true})
	}
	orders, err := order.Parse(args)
	if err != nil {
		return err
	}
	if orders.Fail {
		return fmt.Errorf("failing as requested")
	}
	if orders.Environment != "" {
		if err := os.WriteFile(orders.Environment, []byte(strings.Join(os.Environ(), "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	if err := svc.Run("", service{}); err != nil {
		return err
	}
	// The service manager knows that the service has stopped, but the process still runs.
	<-time.After(orders.Linger)
	return nil
}

type service struct {
	hangs bool
}

// Execute implements svc.Handler.
func (s service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	// The start takes a few steps. The service reports each step.
	for checkpoint := range uint32(3) {
		status <- svc.Status{State: svc.StartPending, CheckPoint: checkpoint + 1, WaitHint: 2000}
		<-time.After(10 * time.Millisecond)
	}
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for request := range requests {
		switch request.Cmd {
		case svc.Interrogate:
			status <- request.CurrentStatus
		case svc.Stop, svc.Shutdown:
			status <- svc.Status{State: svc.StopPending, WaitHint: 2000}
			if !s.hangs {
				return false, 0
			}
		}
	}
	return false, 0
}

// appendAs opens a file as Go programs open their logs.
func appendAs(t *testing.T, path string) func(line string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return func(line string) {
		t.Helper()
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
}

func makeJunction(t *testing.T, path, to string) {
	t.Helper()
	if output, err := exec.CommandContext(t.Context(), "cmd", "/c", "mklink", "/J", path, to).CombinedOutput(); err != nil {
		t.Fatalf("creating a junction: %v: %s", err, output)
	}
}

func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// newDir creates a directory that is removed at the end.
func newDir(t *testing.T) string {
	t.Helper()
	dir := fmt.Sprintf(`C:\wmcotest-%d`, time.Now().UnixNano())
	files := winos.New().Files
	if err := files.MkdirAll(dir, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := files.RemoveAll(dir); err != nil {
			t.Errorf("removing the directory: %v", err)
		}
	})
	return dir
}
