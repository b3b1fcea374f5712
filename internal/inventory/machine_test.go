package inventory_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
)

// machine returns a Machine on AWS, as the cloud reports it after its host was created.
func machine(change func(*inventory.Machine)) inventory.Machine {
	m := inventory.Machine{
		Name: "win-abc12", Namespace: contract.MachineAPINamespace, UID: "uid", CreatedAt: time.Unix(1, 0),
		Phase: inventory.MachineProvisioned,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalDNS, Address: "ip-10-0-1-2.ec2.internal"},
			{Type: corev1.NodeInternalIP, Address: "10.0.1.2"},
			{Type: corev1.NodeHostName, Address: "ip-10-0-1-2.ec2.internal"},
			{Type: corev1.NodeExternalIP, Address: "203.0.113.7"},
		},
		ProviderID: "aws:///zone/i-1",
	}
	if change != nil {
		change(&m)
	}
	return m
}

func addresses(all ...corev1.NodeAddress) func(*inventory.Machine) {
	return func(m *inventory.Machine) { m.Addresses = all }
}

func TestAMachineBecomesAnEntry(t *testing.T) {
	t.Parallel()
	got := inventory.ReadMachine(machine(nil), "aws", nil)
	want := inventory.Reading{Entry: &inventory.Entry{
		Name: "win-abc12", Address: "10.0.1.2", User: "Administrator", Port: 22,
		Machine: &inventory.MachineEntry{
			UID: "uid", ProviderID: "aws:///zone/i-1",
			Addresses: []string{"ip-10-0-1-2.ec2.internal", "10.0.1.2", "203.0.113.7"},
		},
	}}
	if difference := cmp.Diff(want, got); difference != "" {
		t.Error(difference)
	}
}

func TestAMachineThatIsNotReadyWaitsAndOneThatIsWrongSaysWhy(t *testing.T) {
	t.Parallel()
	ip := func(kind corev1.NodeAddressType, value string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: kind, Address: value}
	}
	phase := func(p inventory.MachinePhase) func(*inventory.Machine) {
		return func(m *inventory.Machine) { m.Phase = p }
	}
	for name, test := range map[string]struct {
		change   func(*inventory.Machine)
		platform contract.Platform
		resolves map[string]bool
		// Exactly one of these is set. address is the address in the entry. wait is a part of the reason to wait.
		// reason is the reason of the problem.
		address, wait string
		reason        contract.Reason
	}{
		"a phase that nobody has set":   {change: phase(""), wait: `phase is ""`},
		"a host that is being made":     {change: phase("Provisioning"), wait: "Provisioning"},
		"a host that could not be made": {change: phase("Failed"), wait: "Failed"},
		"a host that goes":              {change: phase("Deleting"), wait: "Deleting"},
		"a phase of a later version":    {change: phase("Updating"), wait: "Updating"},
		"a node":                        {change: phase(inventory.MachineRunning), address: "10.0.1.2"},
		"no address":                    {change: addresses(), wait: "no address"},
		"no provider's name": {change: func(m *inventory.Machine) { m.ProviderID = "" },
			address: "10.0.1.2"},
		"IPv6 before IPv4": {change: addresses(ip("InternalIP", "fd00::1"),
			ip("InternalIP", "10.0.0.9")), address: "10.0.0.9"},
		"several IPv4 addresses": {change: addresses(ip("InternalIP", "10.0.0.9"),
			ip("InternalIP", "10.0.0.8")), address: "10.0.0.9"},
		"IPv6 only": {change: addresses(ip("InternalIP", "fd00::1")),
			reason: contract.ReasonMachineAddressUnusable},
		"an outer address only": {change: addresses(ip("ExternalIP", "203.0.113.7")),
			reason: contract.ReasonMachineAddressUnusable},
		"no address of a host": {change: addresses(ip("InternalIP", "0.0.0.0")),
			reason: contract.ReasonMachineAddressUnusable},
		"a name that resolves": {change: addresses(ip("InternalDNS", "win.example")),
			resolves: map[string]bool{"win.example": true}, address: "win.example"},
		"a name that does not": {change: addresses(ip("InternalDNS", "win.example")),
			reason: contract.ReasonMachineAddressUnusable},
		"the inner name before the host's": {change: addresses(ip("Hostname", "win"),
			ip("InternalDNS", "win.example")), resolves: map[string]bool{"win": true, "win.example": true},
			address: "win.example"},
		"the host's name where it resolves": {change: addresses(ip("Hostname", "win"),
			ip("InternalDNS", "win.example")), resolves: map[string]bool{"win": true}, address: "win"},
		"an address where a name should be": {change: addresses(ip("InternalDNS", "10.0.0.9")),
			resolves: map[string]bool{"10.0.0.9": true}, reason: contract.ReasonMachineAddressUnusable},
		"text that is nothing": {change: addresses(ip("InternalDNS", "a b\n"), ip("InternalIP", "$(x)")),
			resolves: map[string]bool{"a b\n": true}, reason: contract.ReasonMachineAddressUnusable},
		"a port": {change: func(m *inventory.Machine) { m.Port = "2222" },
			address: "10.0.1.2"},
		"an invalid port": {change: func(m *inventory.Machine) { m.Port = "ssh" },
			reason: contract.ReasonMachineAnnotationInvalid},
		"a port beyond all ports": {change: func(m *inventory.Machine) { m.Port = "65536" },
			reason: contract.ReasonMachineAnnotationInvalid},
		"port zero": {change: func(m *inventory.Machine) { m.Port = "0" },
			reason: contract.ReasonMachineAnnotationInvalid},
		"a name of 15 characters on vSphere": {platform: "vsphere",
			change: func(m *inventory.Machine) { m.Name = "winworker-abcde" }, address: "10.0.1.2"},
		"a name of 16 characters on vSphere": {platform: "vsphere",
			change: func(m *inventory.Machine) { m.Name = "winworkers-abcde" },
			reason: contract.ReasonMachineNameInvalid},
		"a name with dots on Nutanix": {platform: "nutanix",
			change: func(m *inventory.Machine) { m.Name = "win.a" }, reason: contract.ReasonMachineNameInvalid},
		"a name of digits on Nutanix": {platform: "nutanix",
			change: func(m *inventory.Machine) { m.Name = "12345" }, reason: contract.ReasonMachineNameInvalid},
		"a long name where it does not show": {platform: "aws",
			change:  func(m *inventory.Machine) { m.Name = "cluster-x7k2p-winworker-us-east-1a-abcde" },
			address: "10.0.1.2"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := inventory.ReadMachine(machine(test.change), test.platform, test.resolves)
			switch {
			case test.address != "" && (got.Entry == nil || got.Entry.Address != test.address):
				t.Errorf("got %+v, want the address %s", got, test.address)
			case test.wait != "" && !strings.Contains(got.Wait, test.wait):
				t.Errorf("got %+v, want a wait for %q", got, test.wait)
			case test.reason != "" && (got.Problem == nil || got.Problem.Reason != test.reason):
				t.Errorf("got %+v, want %s", got, test.reason)
			}
			set := 0
			for _, is := range []bool{got.Entry != nil, got.Wait != "", got.Problem != nil} {
				if is {
					set++
				}
			}
			if set != 1 {
				t.Errorf("%d results at the same time: %+v", set, got)
			}
		})
	}
}

func TestPlatformsDecideUserAndHostname(t *testing.T) {
	t.Parallel()
	for platform, want := range map[contract.Platform][2]string{
		"aws": {"Administrator", ""}, "azure": {"capi", ""}, "gcp": {"Administrator", ""},
		"none":    {"Administrator", ""},
		"vsphere": {"Administrator", "win-abc12"}, "nutanix": {"Administrator", "win-abc12"},
	} {
		entry := inventory.ReadMachine(machine(nil), platform, nil).Entry
		if got := [2]string{entry.User, entry.Machine.Hostname}; got != want {
			t.Errorf("on %s user and host name are %v, want %v", platform, got, want)
		}
	}
}

func TestOnlyNamesThatAreNeededAreResolved(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		machine inventory.Machine
		want    []string
	}{
		"none where there is an address": {machine(nil), nil},
		"each once, the inner ones first": {machine(addresses(
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: "win"},
			corev1.NodeAddress{Type: corev1.NodeInternalDNS, Address: "win.example"},
			corev1.NodeAddress{Type: corev1.NodeHostName, Address: "win.example"},
			corev1.NodeAddress{Type: corev1.NodeExternalDNS, Address: "out.example"})),
			[]string{"win.example", "win"}},
		"nothing that is no name": {machine(addresses(corev1.NodeAddress{Type: corev1.NodeHostName,
			Address: "a;b"})), nil},
	} {
		if got := inventory.NamesToResolve(test.machine); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func FuzzReadMachine(f *testing.F) {
	f.Add("win", "InternalIP", "10.0.0.1", "22", "vsphere")
	f.Add("", "Hostname", "\xff", "-1", "")
	f.Fuzz(func(t *testing.T, name, kind, value, port, platform string) {
		m := inventory.Machine{Name: name, Phase: inventory.MachineRunning, Port: port,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeAddressType(kind), Address: value}}}
		reading := inventory.ReadMachine(m, contract.Platform(platform), map[string]bool{value: true})
		if entry := reading.Entry; entry != nil &&
			(entry.Address != value || strings.ContainsAny(entry.Address, " \n;\"'$") || entry.Port < 1) {
			t.Errorf("entry %+v of %q", entry, value)
		}
	})
}
