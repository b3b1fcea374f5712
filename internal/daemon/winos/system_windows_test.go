package winos_test

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows/registry"

	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func TestTheHostNameIsTheOneThatGoKnows(t *testing.T) {
	facts, err := winos.New().System.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// kubelet uses this name, in lower case.
	hostname, err := os.Hostname()
	if err != nil || facts.Hostname != hostname {
		t.Errorf("host name %q, want %q, %v", facts.Hostname, hostname, err)
	}
}

func TestAVariableThatIsExpandedStaysOne(t *testing.T) {
	const path = `SYSTEM\CurrentControlSet\Control\Session Manager\Environment`
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.ALL_ACCESS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = key.Close() }()
	name := fmt.Sprintf("wmcotest%d", time.Now().UnixNano())
	if err := key.SetExpandStringValue(name, `%SystemRoot%\a`); err != nil {
		t.Fatal(err)
	}
	environment := winos.New().Environment
	if all, err := environment.All(t.Context()); err != nil || all[name] != `%SystemRoot%\a` {
		t.Errorf("read %q, %v; the value must not be expanded", all[name], err)
	}
	if err := environment.Set(t.Context(), name, `%SystemRoot%\b`); err != nil {
		t.Fatal(err)
	}
	value, kind, err := key.GetStringValue(name)
	if err != nil || kind != registry.EXPAND_SZ || value != `%SystemRoot%\b` {
		t.Errorf("kept %q of kind %d, %v", value, kind, err)
	}
	if err := environment.Unset(t.Context(), name); err != nil {
		t.Error(err)
	}
}

func TestAPendingRebootOfWindowsIsSeen(t *testing.T) {
	const path = `SOFTWARE\Microsoft\Windows\CurrentVersion\WindowsUpdate\Auto Update\RebootRequired`
	system := winos.New().System
	if facts, err := system.Facts(t.Context()); err != nil || len(facts.RebootSigns) > 0 {
		t.Skipf("a reboot is already pending (%v)", err)
	}
	key, _, err := registry.CreateKey(registry.LOCAL_MACHINE, path, registry.ALL_ACCESS|registry.WOW64_64KEY)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(key.Close(), registry.DeleteKey(registry.LOCAL_MACHINE, path)); err != nil {
			t.Error(err)
		}
	})
	if facts, err := system.Facts(t.Context()); err != nil || !slices.Equal(facts.RebootSigns,
		[]string{winos.SignUpdate}) {
		t.Errorf("Facts = %+v, %v; want a reboot pending", facts, err)
	}
}

func TestTheNodesAddressIsOneOfTheMachines(t *testing.T) {
	ip, err := winos.New().Network.NodeIP(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(addresses, func(a net.Addr) bool {
		return strings.HasPrefix(a.String(),
			ip.String()+"/")
	}) {
		t.Errorf("%v is not one of the addresses %v", ip, addresses)
	}
}

func TestListeningNamesTheProgramOfAPort(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	want := filepath.Base(self)
	if onWine() {
		want = "" // Wine's table of ports has no processes
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil && at[0] == '[' {
			continue // this machine has no IPv6
		}
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		ports, err := winos.New().Network.Listening(t.Context())
		if name, there := ports[port]; err != nil || !there || !strings.EqualFold(name, want) {
			t.Errorf("port %d belongs to %q, %v; want %q; all: %v", port, name, err, want, ports)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestFeaturesAreUnsupportedWhereTheDISMAPIIsAbsent(t *testing.T) {
	if !onWine() {
		t.Skip("Windows has it")
	}
	system := winos.New().System
	if _, err := system.Feature(t.Context(), "Containers"); !errors.Is(err, winos.ErrUnsupported) {
		t.Errorf("Feature: %v; want ErrUnsupported", err)
	}
	if err := system.EnableFeature(t.Context(), "Containers"); !errors.Is(err, winos.ErrUnsupported) {
		t.Errorf("EnableFeature: %v; want ErrUnsupported", err)
	}
}
