package verbs_test

import (
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/state"
	"github.com/windows-nodes/wmco/lab/sim"
)

// google simulates Google's metadata service.
func google(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Metadata-Flavor", "Google")
		_, _ = io.WriteString(w, name)
	})
}

// inCloud returns a request to join with the name that the cloud gives the host.
func inCloud(name string) contract.BootstrapRequest {
	request := bootstrapRequest()
	m := request.Manifest
	m.Services[1].Command += " --hostname-override=CLOUD_NAME"
	m.Services[1].HostVariables = append(m.Services[1].HostVariables,
		contract.HostVariable{Name: "CLOUD_NAME", Fact: contract.FactGCPHostname})
	request.Manifest, request.NodeName, request.Revision = m, name, versionOf(m)
	return request
}

func TestANodeIsNamedByItsCloudWhereTheManifestSaysSo(t *testing.T) {
	t.Parallel()
	const name = "win-1.c.project.internal"
	r := newRig(t, sim.Options{Metadata: google(name)})
	ask := preflightRequest(r)
	ask.NodeName = contract.FactGCPHostname
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask))
	if found.Facts.NodeName != name || found.Facts.Hostname != "win-a" || len(found.Problems) > 0 {
		t.Errorf("preflight: %+v", found)
	}
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))
	if answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap,
		inCloud("win-a")); answer.Problem == nil || answer.Problem.Reason != contract.ReasonHostnameInvalid ||
		answer.Result.NodeName != name {
		t.Errorf("a join with another name: %+v", answer)
	}
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, inCloud(name)))
	if made.NodeName != name || !strings.HasSuffix(service(t, r, "kubelet").Command, "--hostname-override="+name) {
		t.Errorf("%s, %q", made.NodeName, service(t, r, "kubelet").Command)
	}
	stateFile, err := state.Read(r.Host().Files)
	if err != nil || stateFile.NodeName != name || stateFile.HostValues[contract.FactGCPHostname] != name {
		t.Errorf("the state file has %q, %v, %v", stateFile.NodeName, stateFile.HostValues, err)
	}
	r.SetMetadata(nil, false)
	if answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, inCloud(name)); answer.Problem == nil ||
		answer.Problem.Reason != contract.ReasonMetadataUnavailable {
		t.Errorf("a join without the metadata service: %v", answer.Problem)
	}
	if found = must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask)); len(found.Problems) != 1 ||
		found.Problems[0].Reason != contract.ReasonMetadataUnavailable {
		t.Errorf("preflight without the metadata service: %v", found.Problems)
	}
}

// vSphere's cloud provider finds a machine by the full name that its guest tools report. The comparison is
// case-sensitive.
func TestOnVSphereANodeIsCalledByItsHostsFullName(t *testing.T) {
	t.Parallel()
	const name = "win-a.corp.example"
	r := newRig(t, sim.Options{Hostname: "win-a", DNSSuffix: "corp.example"})
	ask := preflightRequest(r)
	ask.NodeName = contract.FactFullHostname
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask))
	if found.Facts.NodeName != name || found.Facts.Hostname != "win-a" || len(found.Problems) > 0 {
		t.Errorf("preflight: %+v", found)
	}
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))
	request := bootstrapRequest()
	m := request.Manifest
	m.Services[1].Command += " --hostname-override=HOST_NAME"
	m.Services[1].HostVariables = append(m.Services[1].HostVariables,
		contract.HostVariable{Name: "HOST_NAME", Fact: contract.FactFullHostname})
	request.Manifest, request.NodeName, request.Revision = m, name, versionOf(m)
	made := must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request))
	if made.NodeName != name || !strings.HasSuffix(service(t, r, "kubelet").Command, "--hostname-override="+name) {
		t.Errorf("%s, %q", made.NodeName, service(t, r, "kubelet").Command)
	}
	ask.Hostname = "win-b"
	if found = must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask)); found.Facts.NodeName !=
		"win-b.corp.example" {
		t.Errorf("after the host was renamed, its node name is %s", found.Facts.NodeName)
	}
}

func TestAHostIsRenamedAlsoWhereOnlyTheCaseDiffers(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Hostname: "WIN-A"})
	ask := preflightRequest(r)
	ask.NodeName, ask.Hostname = contract.FactFullHostname, "win-a"
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask))
	if len(found.Problems) > 0 || len(found.NeedsPrepare) != 1 {
		t.Errorf("problems %v, to prepare: %q", found.Problems, found.NeedsPrepare)
	}
}

func TestANodeHasTheAddressThatItsInstanceNames(t *testing.T) {
	t.Parallel()
	r := newRig(t, sim.Options{Address: netip.MustParseAddr("127.32.99.1")})
	ask := preflightRequest(r)
	for address, wrong := range map[string]int{"": 0, "127.0.0.1": 0, "10.9.9.9": 1, "nonsense": 1} {
		ask.NodeIP = address
		found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask))
		if len(found.Problems) != wrong || wrong == 1 && found.Problems[0].Reason != contract.ReasonNodeIPMissing {
			t.Errorf("%q: %v", address, found.Problems)
		}
		if address == "127.0.0.1" && found.Facts.NodeIP != address {
			t.Errorf("%q: the node's address would be %s", address, found.Facts.NodeIP)
		}
	}
	ask.NodeIP = ""
	found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask))
	must(t, call[contract.ReceiveAnswer](t, r, contract.VerbReceive, send(t, r.Host().Files, r.Home(), found.Missing)))
	for address, want := range map[string]string{"": "127.32.99.1", "127.0.0.1": "127.0.0.1"} {
		request := bootstrapRequest()
		request.NodeIP = address
		must(t, call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request))
		if got := service(t, r, "kubelet").Command; !strings.HasSuffix(got, " --node-ip="+want) {
			t.Errorf("%q: kubelet's command is %q", address, got)
		}
	}
	request := bootstrapRequest()
	request.NodeIP = "10.9.9.9"
	if answer := call[contract.BootstrapAnswer](t, r, contract.VerbBootstrap, request); answer.Problem == nil ||
		answer.Problem.Reason != contract.ReasonNodeIPMissing {
		t.Errorf("with an address that the host doesn't have: %v", answer.Problem)
	}
}

// amazon simulates version 2 of the AWS metadata service.
func amazon(name string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			_, _ = io.WriteString(w, "token")
			return
		}
		_, _ = io.WriteString(w, name)
	})
}

// When HNS created the network, the host lost its own route to the metadata service, and cleanup removed the daemon's
// route. So the host could not join again until its next boot (W309).
func TestAHostOnAWSThatLeavesCanJoinAgain(t *testing.T) {
	t.Parallel()
	const name = "ip-10-0-0-1.ec2.internal"
	r := newRig(t, sim.Options{Metadata: amazon(name), MetadataRouted: true})
	to := netip.MustParseAddr("169.254.169.254")
	ask := preflightRequest(r)
	ask.NodeName = contract.FactAWSHostname
	preflight := func(when string) {
		t.Helper()
		found := must(t, call[contract.PreflightAnswer](t, r, contract.VerbPreflight, ask))
		if found.Facts.NodeName != name || len(found.Problems) > 0 {
			t.Errorf("%s: %+v", when, found)
		}
	}
	preflight("at first")
	join(t, r)
	r.LoseRoutes() // this happens when HNS creates the network
	stop(t, r, contract.ServiceDaemon)
	stateFile, err := state.Open(r.Host().Files)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.Host().Routes.Ensure(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	stateFile.Routes.Add(to.String())
	if err = stateFile.Save(); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, r)
	if !r.Routes()[to] {
		t.Error("the host lost its route to the metadata service")
	}
	r.LoseRoutes()
	r.upload(t)
	preflight("after a change of networks")
}
