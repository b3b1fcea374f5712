package winos_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/Microsoft/hcsshim"
	"golang.org/x/sys/windows"
	"golang.org/x/sys/windows/svc"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
	"github.com/windows-nodes/wmco/internal/daemon/winos/winostest"
	"github.com/windows-nodes/wmco/internal/daemon/winos/winostest/order"
)

// TestConformance changes the machine that it runs on, and takes it back: services, variables,
// certificates and files whose names begin with wmcotest. It needs an administrator's rights. The
// machine is not restarted, and keeps its host name and features.
func TestConformance(t *testing.T) {
	winostest.Run(t, func(t *testing.T) winostest.Fixture {
		t.Helper()
		fixture := winostest.Fixture{Host: winos.New(), Scratch: newDir(t), InstallService: installService,
			Listen: listen, AppendAs: appendAs}
		if onWine() {
			fixture.Cannot = wineCannot()
			fixture.CreateNetwork = createNetwork
		}
		return fixture
	})
}

// createNetwork makes an HNS network in the stand-in of the lab's Wine hosts. On Windows it would
// take over a network card.
func createNetwork(t *testing.T, name string, subnet netip.Prefix) {
	t.Helper()
	subnets := []hcsshim.Subnet{{AddressPrefix: subnet.String(),
		GatewayAddress: subnet.Masked().Addr().Next().String()}}
	if _, err := (&hcsshim.HNSNetwork{Name: name, Type: "Overlay", Subnets: subnets}).Create(); err != nil {
		t.Fatal(err)
	}
}

// wineCannot says what Wine 8 can't do. It has no host network service either, but the lab's hosts
// have a stand-in.
func wineCannot() map[winostest.Ability]string {
	cannot := map[winostest.Ability]string{
		winostest.CircularRefused: "its service manager takes circles",
		winostest.Recovery:        "its service manager takes recovery actions and never acts on them",
		winostest.ServiceEnvironment: "its service manager ignores a service's own variables, and knows the " +
			"system's as they were at boot",
		winostest.CaseInsensitive: "a rename that only changes case does nothing",
		winostest.Features:        "it has no DISM API",
		winostest.Routing:         "its IP helper has no functions that change routes",
	}
	if windows.NewLazySystemDLL("vmcompute.dll").Load() != nil {
		cannot[winostest.HNS] = "it has no host network service, and this is none of the lab's hosts"
	}
	return cannot
}

// onWine says whether the tests run on Wine, which lacks parts of Windows.
func onWine() bool {
	return windows.NewLazySystemDLL("ntdll.dll").NewProc("wine_get_version").Find() == nil
}

// testSuffix ends the name of a test binary. Under any other name it is the suite's test service.
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

// installService copies the test binary itself.
func installService(t *testing.T, path string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(strings.ToLower(self), testSuffix) || strings.HasSuffix(strings.ToLower(path), testSuffix) {
		t.Fatalf("%s can't be told from the test service %s", filepath.Base(self), path)
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

func serve(args []string) error {
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
		return fmt.Errorf("failing as ordered")
	}
	if orders.Environment != "" {
		if err := os.WriteFile(orders.Environment, []byte(strings.Join(os.Environ(), "\n")+"\n"), 0o600); err != nil {
			return err
		}
	}
	if err := svc.Run("", service{Orders: orders}); err != nil {
		return err
	}
	// The service manager has been told; the process stays.
	<-time.After(orders.Linger)
	return nil
}

type service struct {
	order.Orders
	hangs bool
}

// Execute is svc.Handler.
func (s service) Execute(_ []string, requests <-chan svc.ChangeRequest, status chan<- svc.Status) (bool, uint32) {
	// Starting takes a few steps, each of which is reported.
	for checkpoint := range uint32(3) {
		status <- svc.Status{State: svc.StartPending, CheckPoint: checkpoint + 1, WaitHint: 2000}
		<-time.After(10 * time.Millisecond)
	}
	var crash <-chan time.Time
	if s.Crash > 0 {
		crash = time.After(s.Crash)
	}
	status <- svc.Status{State: svc.Running, Accepts: svc.AcceptStop | svc.AcceptShutdown}
	for {
		select {
		case <-crash:
			os.Exit(3)
		case request := <-requests:
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
	}
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

func listen(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().(*net.TCPAddr).Port
}

// newDir makes a directory that is removed afterwards.
func newDir(t *testing.T) string {
	t.Helper()
	dir := fmt.Sprintf(`C:\wmcotest-%d`, time.Now().UnixNano())
	files := winos.New().Files
	if err := files.MkdirAll(dir, winos.AccessInherit); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := winos.RemoveAll(files, dir); err != nil {
			t.Errorf("cleaning up: %v", err)
		}
	})
	return dir
}
