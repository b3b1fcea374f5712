package verbs

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

// fit returns a host without any problem.
func fit() (findings, contract.PreflightRequest) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return findings{
		facts: winos.Facts{Hostname: "WIN-A", ProductName: "Windows Server 2022 Datacenter", Server: true, Build: 20348,
			UBR: 2700, Admin: true, DiskFree: 100 * gib},
		now: now, daemon: "d", nodeIP: "10.0.0.1", feature: winos.FeatureEnabled,
		listening: map[int]string{22: "sshd.exe"}, services: map[string]winos.Service{}, ours: true,
	}, contract.PreflightRequest{Time: now, Daemon: "d"}
}

func managed(name string) winos.Service {
	return winos.Service{ServiceConfig: winos.ServiceConfig{Name: name, Description: "OpenShift managed " + name},
		State: winos.ServiceRunning}
}

func foreign(name string) winos.Service {
	return winos.Service{ServiceConfig: winos.ServiceConfig{Name: name, Description: "The " + name},
		State: winos.ServiceRunning}
}

func TestA08_WhatKeepsAHostFromJoining(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(f *findings, r *contract.PreflightRequest)
		want   []contract.Reason
	}{
		"nothing": {func(*findings, *contract.PreflightRequest) {}, nil},
		"Windows Server 2019": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.facts.Build = 17763
		}, nil},
		"Windows Server 2025": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.facts.Build = 26100
		}, nil},
		"A43: Windows Server 2022 before the update that the overlay needs": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.facts.Build, f.facts.UBR = 20348, 680
		}, []contract.Reason{contract.ReasonBuildUnsupported}},
		"A43: Windows Server 2022 with that update": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.facts.Build, f.facts.UBR = 20348, 681
		}, nil},
		"Windows Server, version 23H2": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.facts.Build = 25398
		}, []contract.Reason{contract.ReasonBuildUnsupported}},
		"a client of the same build": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.facts.Server = false
		}, []contract.Reason{contract.ReasonBuildUnsupported}},
		"no administrator, and nothing else is believed": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.facts.Admin, f.facts.Build = false, 1
		}, []contract.Reason{contract.ReasonNotAdministrator}},
		"another daemon than was sent": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.daemon = "x"
		}, []contract.Reason{contract.ReasonPayloadCorrupt}},
		"no feature for containers in this Windows": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.featureErr = errors.New("x")
		}, []contract.Reason{contract.ReasonFeatureMissing}},
		"a disk with 10 GiB": {func(f *findings, _ *contract.PreflightRequest) { f.facts.DiskFree = 10 * gib }, nil},
		"a disk with less": {func(f *findings, _ *contract.PreflightRequest) { f.facts.DiskFree = 10*gib - 1 },
			[]contract.Reason{contract.ReasonDiskFull}},
		"a disk with room for images but not for the payload": {func(f *findings, _ *contract.PreflightRequest) {
			f.facts.DiskFree, f.missing = 10*gib+199, []contract.Blob{{Size: 100}}
		}, []contract.Reason{contract.ReasonDiskFull}},
		"a joined host with 2 GiB": {func(f *findings, _ *contract.PreflightRequest) {
			f.facts.DiskFree, f.services[contract.ServiceDaemon] = 2*gib, managed(contract.ServiceDaemon)
		}, nil},
		"a clock two minutes ahead": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.now = f.now.Add(2 * time.Minute)
		}, nil},
		"a clock that is far ahead": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.now = f.now.Add(121 * time.Second)
		}, []contract.Reason{contract.ReasonClockSkewed}},
		"a clock that is far behind": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.now = f.now.Add(-time.Hour)
		}, []contract.Reason{contract.ReasonClockSkewed}},
		"a request without a time": {func(_ *findings, r *contract.PreflightRequest) { r.Time = time.Time{} }, nil},
		"a host name with a _": {func(f *findings, _ *contract.PreflightRequest) { f.facts.Hostname = "WIN_A" },
			[]contract.Reason{contract.ReasonHostnameInvalid}},
		"a bad host name that will be changed": {func(f *findings, r *contract.PreflightRequest) {
			f.facts.Hostname, r.Hostname = "WIN_A", "win-a"
		}, nil},
		"a bad host name that is asked for": {func(_ *findings, r *contract.PreflightRequest) { r.Hostname = "-a" },
			[]contract.Reason{contract.ReasonHostnameInvalid}},
		"no default route": {func(f *findings, _ *contract.PreflightRequest) { f.routeErr = errors.New("x") },
			[]contract.Reason{contract.ReasonNoDefaultRoute}},
		"another program on kubelet's port": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.listening[10250] = "nginx.exe"
		}, []contract.Reason{contract.ReasonPortInUse}},
		"our kubelet on kubelet's port": {func(f *findings, _ *contract.PreflightRequest) {
			f.listening[10250], f.services["kubelet"] = "kubelet.exe", managed("kubelet")
		}, nil},
		"other programs on both ports": {func(f *findings, _ *contract.PreflightRequest) {
			f.listening[10250], f.listening[9182] = "", "x.exe"
		}, []contract.Reason{contract.ReasonPortInUse, contract.ReasonPortInUse}},
		"A84: a kubelet of another operator, which describes it as ours does": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.listening[10250], f.services["kubelet"], f.ours = "kubelet.exe", managed("kubelet"), false
		}, []contract.Reason{contract.ReasonConflictingSoftware}},
		"Docker": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.services["docker"] = foreign("docker")
		}, []contract.Reason{contract.ReasonConflictingSoftware}},
		"a foreign containerd": {func(f *findings,
			_ *contract.PreflightRequest) {
			f.services["containerd"] = foreign("containerd")
		}, []contract.Reason{contract.ReasonConflictingSoftware}},
		"a directory of another owner": {func(f *findings, _ *contract.PreflightRequest) {
			f.problems = []contract.Problem{{Reason: contract.ReasonConflictingSoftware, Detail: "x"}}
		}, []contract.Reason{contract.ReasonConflictingSoftware}},
		"an address that the host lacks": {func(f *findings, _ *contract.PreflightRequest) {
			f.problems = []contract.Problem{{Reason: contract.ReasonNodeIPMissing, Detail: "x"}}
		}, []contract.Reason{contract.ReasonNodeIPMissing}},
		"a cloud that does not tell the name": {func(f *findings, r *contract.PreflightRequest) {
			r.NodeName = contract.FactAWSHostname
			f.problems = []contract.Problem{{Reason: contract.ReasonMetadataUnavailable, Detail: "x"}}
		}, []contract.Reason{contract.ReasonMetadataUnavailable}},
		"a host name with a _ on a cloud that gives another": {func(f *findings, r *contract.PreflightRequest) {
			r.NodeName, f.facts.Hostname = contract.FactAWSHostname, "WIN_A"
		}, nil},
		"vSphere: a name in lower case": {func(f *findings, r *contract.PreflightRequest) {
			r.NodeName, f.facts.Hostname = contract.FactFullHostname, "win-a"
		}, nil},
		"vSphere: a name in a domain": {func(f *findings, r *contract.PreflightRequest) {
			r.NodeName, f.facts.Hostname, f.facts.FullName = contract.FactFullHostname, "win-a", "win-a.corp.example"
		}, nil},
		"vSphere: a name as Windows Setup gives it": {func(_ *findings, r *contract.PreflightRequest) {
			r.NodeName = contract.FactFullHostname
		}, []contract.Reason{contract.ReasonHostnameInvalid}},
		"vSphere: such a name that will be changed": {func(_ *findings, r *contract.PreflightRequest) {
			r.NodeName, r.Hostname = contract.FactFullHostname, "win-a"
		}, nil},
		"vSphere: a domain in capitals": {func(f *findings, r *contract.PreflightRequest) {
			r.NodeName, r.Hostname, f.facts.FullName = contract.FactFullHostname, "win-a", "WIN-A.CORP.example"
		}, []contract.Reason{contract.ReasonHostnameInvalid}},
		"vSphere: a domain with a _": {func(f *findings, r *contract.PreflightRequest) {
			r.NodeName, r.Hostname, f.facts.FullName = contract.FactFullHostname, "win-a", "WIN-A.my_corp.example"
		}, []contract.Reason{contract.ReasonHostnameInvalid}},
		"a domain elsewhere": {func(f *findings, _ *contract.PreflightRequest) {
			f.facts.FullName = "WIN-A.CORP.example"
		}, nil},
		"several at once": {func(f *findings, _ *contract.PreflightRequest) {
			f.facts.Build, f.facts.DiskFree, f.routeErr = 1, 0, errors.New("x")
		}, []contract.Reason{contract.ReasonBuildUnsupported, contract.ReasonDiskFull, contract.ReasonNoDefaultRoute}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, r := fit()
			c.change(&f, &r)
			var got []contract.Reason
			for _, p := range judge(f, r) {
				got = append(got, p.Reason)
				if p.Detail == "" || p.Reason.Number() == 0 || strings.Contains(p.Detail, "%!") {
					t.Errorf("%s: %q", p.Reason, p.Detail)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestA43_PreflightTellsWhatTheNetworkNeeds(t *testing.T) {
	t.Parallel()
	type request = contract.PreflightRequest
	joined := map[string]winos.Service{contract.ServiceDaemon: managed(contract.ServiceDaemon)}
	for name, c := range map[string]struct {
		change func(f *findings, r *request)
		want   []contract.Reason
	}{
		"Server 2019 with a VXLAN port": {func(f *findings, r *request) { f.facts.Build, r.VXLANPort = 17763, 9898 },
			[]contract.Reason{contract.ReasonVXLANPortUnsupported}},
		"Server 2022 with a VXLAN port": {func(_ *findings, r *request) { r.VXLANPort = 9898 }, nil},
		"a static address": {func(f *findings, _ *request) { f.facts.Build, f.facts.StaticAddress = 26100, true },
			[]contract.Reason{contract.ReasonStaticAddress}},
		"a static address on Server 2022": {func(f *findings, _ *request) { f.facts.StaticAddress = true }, nil},
		"a static address that HNS lets be": {func(f *findings, _ *request) {
			f.facts.Build, f.facts.StaticAddress, f.facts.DeviceLessNICDisabled = 17763, true, true
		}, nil},
		"a static address of a host that has joined": {func(f *findings, _ *request) {
			f.facts.Build, f.facts.StaticAddress, f.services = 26100, true, joined
		}, nil},
		"two gateways": {func(f *findings, _ *request) { f.facts.Gateways = []string{"Ethernet", "Storage"} },
			[]contract.Reason{contract.ReasonSeveralGateways}},
		"two gateways and an address that was chosen": {func(f *findings, r *request) {
			f.facts.Gateways, r.NodeIP = []string{"Ethernet", "Storage"}, "10.0.0.1"
		}, nil},
		"vSphere: capital letters of a host that has joined": {func(f *findings, r *request) {
			r.NodeName, f.services = contract.FactFullHostname, joined
		}, nil},
		"two gateways of a host that has joined": {func(f *findings, _ *request) {
			f.facts.Gateways, f.services = []string{"Ethernet", "vEthernet (Ethernet)"}, joined
		}, nil},
		"addresses that VMware Tools hide": {func(f *findings, _ *request) { f.hidden = true },
			[]contract.Reason{contract.ReasonAddressHidden}},
		"those of a host that has joined": {func(f *findings, _ *request) { f.hidden, f.services = true, joined }, nil},
		"one gateway":                     {func(f *findings, _ *request) { f.facts.Gateways = []string{"Ethernet"} }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, r := fit()
			c.change(&f, &r)
			var got []contract.Reason
			for _, p := range judge(f, r) {
				got = append(got, p.Reason)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found %v, want %v", got, c.want)
			}
		})
	}
}
