package plan_test

import (
	"encoding/pem"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/plan"
	"github.com/windows-nodes/wmco/internal/daemon/winos"
)

func input() plan.Input {
	return plan.Input{
		Manifest: contract.Manifest{
			Services: []contract.Service{
				{Name: "kubelet", Command: `C:\k\kubelet.exe --ip=IP --host=IP_NAME`, Bootstrap: true,
					HostVariables: []contract.HostVariable{
						{Name: "IP", Fact: contract.FactNodeIP}, {Name: "IP_NAME", Fact: contract.FactHostname},
					}},
				{Name: "overlay", Command: `C:\k\overlay.exe --node NODE`, Priority: 2,
					Dependencies:  []string{"kubelet"},
					NodeVariables: []contract.NodeVariable{{Name: "NODE", JSONPath: "{.metadata.name}"}}},
				{Name: "proxy", Command: `C:\k\proxy.exe`, Priority: 3, Dependencies: []string{"overlay"}},
			},
			Files: []contract.File{
				{Path: `C:\k\kubelet.conf`, Content: "x", Services: []string{"kubelet"}},
				{Path: `C:\k\proxy.conf`, Content: "vip VIP", Services: []string{"proxy"},
					HostVariables: []contract.HostVariable{{Name: "VIP", Fact: contract.FactSourceVIP}}},
				{Path: `C:\var\log\notes`, Content: "y"},
			},
			EnvironmentVars: map[string]string{"A": "1"},
		},
		Scope: plan.Everything,
		Node: plan.NodeFields(map[string]any{"metadata": map[string]any{"name": "win-a",
			"annotations": map[string]any{"evil": "a b"}}}, nil),
		Host: func(f contract.Fact) (string, *contract.Problem) {
			value, ok := map[contract.Fact]string{contract.FactNodeIP: "10.0.0.5", contract.FactHostname: "IP",
				contract.FactSourceVIP: "10.132.0.2"}[f]
			if !ok {
				return "", contract.NewProblem(contract.ReasonNetworkPending, "no %s", f)
			}
			return value, nil
		},
	}
}

func TestVariablesAreFilledIn(t *testing.T) {
	t.Parallel()
	got := plan.Resolve(input())
	var commands []string
	for _, s := range got.Services {
		if s.Waiting != nil {
			t.Errorf("%s waits: %v", s.Name, s.Waiting)
		}
		commands = append(commands, s.Command)
	}
	// The longest matching name is replaced, and names in the inserted value are not replaced.
	want := []string{`C:\k\kubelet.exe --ip=10.0.0.5 --host=IP`, `C:\k\overlay.exe --node win-a`, `C:\k\proxy.exe`}
	if diff := cmp.Diff(want, commands); diff != "" {
		t.Error(diff)
	}
	if content := string(got.Files[1].Content); content != "vip 10.132.0.2" {
		t.Errorf("file: %q", content)
	}
	if got.Files[0].Access != winos.AccessAdministrators || got.Files[2].Access != winos.AccessInherit {
		t.Error("the access does not depend on the directory")
	}
	if got.Services[0].Environment["A"] != "1" || !contract.IsManaged(got.Services[0].Description) ||
		len(got.Services[0].Recovery) != 4 {
		t.Errorf("service: %+v", got.Services[0])
	}
}

func TestBootstrapLeavesOutWhatNeedsANode(t *testing.T) {
	t.Parallel()
	in := input()
	everything := plan.Resolve(in)
	in.Scope = plan.Bootstrap
	got := plan.Resolve(in)
	if len(got.Services) != 1 || got.Services[0].Name != "kubelet" || len(got.Files) != 2 {
		t.Errorf("got %+v", got)
	}
	if got.Services[0].Inputs != everything.Services[0].Inputs {
		t.Error("the daemon would restart kubelet after bootstrap")
	}
}

func TestWhatIsNotKnownIsWaitedFor(t *testing.T) {
	t.Parallel()
	in := input()
	in.Node = plan.NodeFields(nil, nil)
	got := plan.Resolve(in)
	for _, s := range got.Services {
		if waits := s.Waiting != nil; waits != (s.Name != "kubelet") {
			t.Errorf("%s waits for %v", s.Name, s.Waiting)
		}
	}
	if got.Services[2].Waiting.Reason != contract.ReasonNodePending {
		t.Errorf("a service that depends on it waits for %v", got.Services[2].Waiting)
	}
	in.Node = plan.NodeFields(nil, map[string]string{"{.metadata.name}": "win-a"})
	if got = plan.Resolve(in); got.Services[1].Waiting != nil ||
		!strings.HasSuffix(got.Services[1].Command, "--node win-a") {
		t.Errorf("with a stored value: %+v", got.Services[1])
	}
}

func TestValuesOfTheNodeThatCouldBreakOutAreRefused(t *testing.T) {
	t.Parallel()
	in := input()
	in.Manifest.Services[1].NodeVariables[0].JSONPath = "{.metadata.annotations.evil}"
	got := plan.Resolve(in)
	if p := got.Services[1].Waiting; p == nil || p.Reason != contract.ReasonManifestInvalid {
		t.Errorf("got %v with the command %q", p, got.Services[1].Command)
	}
}

func TestInputsChangeWithEverythingThatAProcessReads(t *testing.T) {
	t.Parallel()
	inputs := func(change func(*plan.Input)) string {
		in := input()
		change(&in)
		return plan.Resolve(in).Services[0].Inputs
	}
	same := inputs(func(*plan.Input) {})
	for name, change := range map[string]func(*plan.Input){
		"its file":        func(in *plan.Input) { in.Manifest.Files[0].Content = "z" },
		"its command":     func(in *plan.Input) { in.Manifest.Services[0].Command += " -v" },
		"its environment": func(in *plan.Input) { in.Manifest.EnvironmentVars = nil },
	} {
		if inputs(change) == same {
			t.Errorf("%s changed, but the inputs did not", name)
		}
	}
	if inputs(func(in *plan.Input) { in.Manifest.Files[2].Content = "z" }) != same {
		t.Error("a file that the service does not read changed its inputs")
	}
}

func TestWhatIsConfidentialIsPartOfTheTarget(t *testing.T) {
	t.Parallel()
	in := input()
	in.Manifest.WatchedEnvironmentVars = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}
	in.Inherited = func(name string) bool { return name == "http_proxy" || name == "https_proxy" }
	der := []byte{0x30, 0x00}
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	in.Confidential = contract.Confidential{
		Environment: map[string]string{"Https_Proxy": "secret"}, Trust: []string{text, text, "no certificate"},
		Files: []contract.File{{Path: `C:\var\log\secret`, Content: "key"}},
	}
	in.Registry = []contract.File{{Path: `C:\k\containerd\registries\quay.io\hosts.toml`, Content: "toml"}}
	got := plan.Resolve(in)
	if diff := cmp.Diff(map[string]string{"A": "1", "Https_Proxy": "secret"}, got.Environment); diff != "" {
		t.Error(diff)
	}
	// A variable that the daemon set earlier and deleted may still be in the service manager's own environment.
	if diff := cmp.Diff(map[string]string{"A": "1", "Https_Proxy": "secret", "HTTP_PROXY": ""},
		got.Services[0].Environment); diff != "" {
		t.Error(diff)
	}
	if len(got.Roots) != 1 || string(got.Roots[plan.Fingerprint(der)]) != string(der) || len(got.Problems) != 1 ||
		strings.Contains(got.Problems[0].Detail, "no certificate at all") {
		t.Errorf("roots %v, problems %v", got.Roots, got.Problems)
	}
	for _, f := range got.Files[len(got.Files)-2:] {
		if f.Access != winos.AccessAdministrators {
			t.Errorf("users may read %s", f.Path)
		}
	}
	if got.RegistryUnknown {
		t.Error("a value is reported as unknown")
	}
}

func TestAWSAsksForTheRouteToItsMetadata(t *testing.T) {
	t.Parallel()
	in := input()
	if got := plan.Resolve(in); len(got.Routes) != 0 {
		t.Errorf("routes %v", got.Routes)
	}
	in.Manifest.Services[0].HostVariables = append(in.Manifest.Services[0].HostVariables,
		contract.HostVariable{Name: "N", Fact: contract.FactAWSHostname})
	if got := plan.Resolve(in); len(got.Routes) != 1 || got.Routes[0].String() != "169.254.169.254" {
		t.Errorf("routes %v", got.Routes)
	}
}
