package winos_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/windows/registry"

	"github.com/windows-nodes/wmco/internal/agent/winos"
)

func TestFactsDescribeTheMachine(t *testing.T) {
	system := winos.New().System
	facts, err := system.Facts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", facts)
	hostname, err := os.Hostname()
	if err != nil || !strings.EqualFold(facts.Hostname, hostname) {
		t.Errorf("host name %q, want %q, %v", facts.Hostname, hostname, err)
	}
	if facts.MachineID == "" || facts.BootID == "" || facts.ProductName == "" || facts.Build < 10000 {
		t.Errorf("facts are missing: %+v", facts)
	}
	if facts.Memory < 1<<28 || facts.DiskTotal < 1<<30 || facts.DiskFree <= 0 || facts.DiskFree > facts.DiskTotal {
		t.Errorf("sizes make no sense: %+v", facts)
	}
	if !facts.Admin {
		t.Error("the tests run without administrators' rights")
	}
	again, err := system.Facts(t.Context())
	if err != nil || again.BootID != facts.BootID {
		t.Errorf("the boot is called %q, then %q, %v", facts.BootID, again.BootID, err)
	}
	if time.Since(system.Now()).Abs() > time.Minute {
		t.Error("Now is not now")
	}
}

func TestHostNamesThatNoComputerMayHaveAreRefused(t *testing.T) {
	for _, name := range []string{"", "-a", "a.b", "123", "a b", strings.Repeat("a", 64)} {
		if err := winos.New().System.SetHostname(t.Context(), name); !errors.Is(err, winos.ErrInvalidName) {
			t.Errorf("SetHostname(%q): %v; want ErrInvalidName", name, err)
		}
	}
}

func TestSystemVariablesAreSetChangedAndRemoved(t *testing.T) {
	environment := winos.New().Environment
	name := fmt.Sprintf("WINOS_TEST_%d", time.Now().UnixNano())
	t.Cleanup(func() {
		if err := environment.Unset(t.Context(), name); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	for _, value := range []string{"one", "http://user:p%40ss@proxy:3128", "http://user:p%40ss@proxy:3128", ""} {
		if err := environment.Set(t.Context(), strings.ToLower(name), value); err != nil {
			t.Fatal(err)
		}
		all, err := environment.All(t.Context())
		if err != nil || all[strings.ToLower(name)] != value {
			t.Errorf("the value is %q, %v; want %q", all[strings.ToLower(name)], err, value)
		}
	}
	for range 2 {
		if err := environment.Unset(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	all, err := environment.All(t.Context())
	if _, there := all[strings.ToLower(name)]; there || err != nil {
		t.Errorf("it is there after Unset, %v", err)
	}
	for _, bad := range []string{"", "A=B", "A\x00"} {
		if err := environment.Set(t.Context(), bad, "x"); !errors.Is(err, winos.ErrInvalidName) {
			t.Errorf("Set(%q): %v; want ErrInvalidName", bad, err)
		}
	}
}

func TestAVariableThatIsExpandedStaysOne(t *testing.T) {
	const path = `SYSTEM\CurrentControlSet\Control\Session Manager\Environment`
	key, err := registry.OpenKey(registry.LOCAL_MACHINE, path, registry.ALL_ACCESS)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = key.Close() }()
	name := fmt.Sprintf("WINOS_TEST_%d", time.Now().UnixNano())
	if err := key.SetExpandStringValue(name, `%SystemRoot%\a`); err != nil {
		t.Fatal(err)
	}
	environment := winos.New().Environment
	if all, err := environment.All(t.Context()); err != nil || all[name] != `%SystemRoot%\a` {
		t.Errorf("read %q, %v; want it not expanded", all[name], err)
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

// newCertificate makes a root certificate. Those with one serial number are "the same" to CryptoAPI, though their keys differ.
func newCertificate(t *testing.T, serial int64) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "winos test root"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestRootCertificatesAreAddedOnceAndRemovedByContent(t *testing.T) {
	trust := winos.New().Trust
	before, err := trust.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	serial := time.Now().UnixNano()
	// The third has issuer and serial number of the first; the fourth is one that Go refuses to parse.
	certificates := [][]byte{newCertificate(t, serial), newCertificate(t, serial+1), newCertificate(t, serial), odd(newCertificate(t, serial+2))}
	t.Cleanup(func() {
		after, err := trust.List(t.Context())
		if err == nil && len(after) != len(before) {
			t.Errorf("%d certificates are left, want %d", len(after), len(before))
		}
	})
	for range 2 {
		for i, der := range certificates {
			if err := trust.Add(t.Context(), der); err != nil {
				t.Fatalf("certificate %d: %v", i, err)
			}
		}
	}
	all, err := trust.List(t.Context())
	if err != nil || len(all) != len(before)+len(certificates) {
		t.Fatalf("%d certificates, %v; want %d", len(all), err, len(before)+len(certificates))
	}
	for i, der := range certificates {
		has := func(other []byte) bool { return string(other) == string(der) }
		if !slices.ContainsFunc(all, has) {
			t.Errorf("certificate %d is not listed", i)
		}
		for range 2 {
			if err := trust.Remove(t.Context(), der); err != nil {
				t.Errorf("certificate %d: %v", i, err)
			}
		}
		if all, err = trust.List(t.Context()); err != nil || slices.ContainsFunc(all, has) || len(all) != len(before)+len(certificates)-i-1 {
			t.Errorf("after removing certificate %d: %d certificates, %v", i, len(all), err)
		}
	}
	for _, garbage := range [][]byte{nil, []byte("no certificate")} {
		if err := trust.Add(t.Context(), garbage); err == nil {
			t.Errorf("Add took %q", garbage)
		}
		if err := trust.Remove(t.Context(), garbage); err != nil {
			t.Errorf("Remove of %q: %v", garbage, err)
		}
	}
}

// odd gives a certificate a version that does not exist, which CryptoAPI doesn't mind.
func odd(der []byte) []byte {
	der = slices.Clone(der)
	// [0] EXPLICIT INTEGER 2, that is version 3.
	i := strings.Index(string(der), "\xa0\x03\x02\x01\x02")
	der[i+4] = 9
	return der
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
	if !slices.ContainsFunc(addresses, func(a net.Addr) bool { return strings.HasPrefix(a.String(), ip.String()+"/") }) {
		t.Errorf("%v is none of %v", ip, addresses)
	}
}

func TestListeningNamesTheProgramOfAPort(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil && at[0] == '[' {
			continue // no IPv6 here
		}
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		ports, err := winos.New().Network.Listening(t.Context())
		if err != nil || !strings.EqualFold(ports[port], filepath.Base(self)) {
			t.Errorf("port %d of %s belongs to %q, %v; all: %v", port, at, ports[port], err, ports)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestWhatThisSystemLacksIsUnsupported(t *testing.T) {
	if !onWine() {
		t.Skip("Windows has all of it")
	}
	host := winos.New()
	_, feature := host.System.Feature(t.Context(), "Containers")
	_, look := host.Network.HNSNetwork(t.Context(), "n")
	_, endpoint := host.Network.EnsureEndpoint(t.Context(), "n", "e")
	for doing, err := range map[string]error{
		"Feature": feature, "EnableFeature": host.System.EnableFeature(t.Context(), "Containers"),
		"HNSNetwork": look, "EnsureEndpoint": endpoint, "RemoveHNSNetwork": host.Network.RemoveHNSNetwork(t.Context(), "n"),
	} {
		if !errors.Is(err, winos.ErrUnsupported) {
			t.Errorf("%s: %v; want ErrUnsupported", doing, err)
		}
	}
}

func TestDefenderIsLeftAloneWhereItIsAbsent(t *testing.T) {
	if !onWine() {
		t.Skip("would change the machine's policy")
	}
	if err := winos.New().System.ExcludeFromDefender(t.Context(), `C:\k\containerd\containerd.exe`); err != nil {
		t.Error(err)
	}
}
