package contract

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

const digestA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func sample() Manifest {
	return Manifest{
		Services: []Service{
			{Name: "containerd", Command: `C:\k\containerd\containerd.exe --run-service`, Bootstrap: true},
			{Name: "kubelet", Command: `C:\k\kube-log-runner.exe C:\k\kubelet.exe --node-ip=NODE_IP`, Bootstrap: true,
				Priority:     1,
				Dependencies: []string{"containerd"}, HostVariables: []HostVariable{{"NODE_IP", FactNodeIP}}},
			{Name: "hybrid-overlay-node", Command: `"C:\k\hybrid-overlay-node.exe" --node NODE_NAME`, Priority: 2,
				Dependencies:  []string{"kubelet"},
				NodeVariables: []NodeVariable{{"NODE_NAME", "{.metadata.name}"}}},
			{Name: "kube-proxy", Command: `C:\k\kube-proxy.exe --config=C:\k\kube-proxy.conf`, Priority: 3,
				Dependencies: []string{"hybrid-overlay-node"}},
		},
		Files: []File{
			{Path: PathKubelet, Digest: digestA, Size: 3, Services: []string{"kubelet"}},
			{Path: PathKubeletConfig, Content: `{"a":"<&>"}`, Services: []string{"kubelet"}},
			{Path: PathKubeProxyConfig, Content: "sourceVip: VIP",
				HostVariables: []HostVariable{{"VIP", FactSourceVIP}}, Services: []string{"kube-proxy"}},
		},
		EnvironmentVars:         map[string]string{"HTTP_PROXY": "http://proxy:3128"},
		WatchedEnvironmentVars:  []string{"HTTP_PROXY", "NO_PROXY"},
		Confidential:            digestA,
		ConfidentialEnvironment: digestA,
		Daemon:                  &DaemonSettings{Debug: true, Log: &Log{MaxSize: 1 << 20, MaxFiles: 3}},
	}
}

func TestManifestSurvivesAConfigMap(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]Manifest{"full": sample(), "empty": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := m.Data()
			if err != nil {
				t.Fatal(err)
			}
			got, err := ManifestFromConfigMap(data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(m, got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if got.Digest() != m.Digest() {
				t.Error("the digest changed in the ConfigMap")
			}
		})
	}
}

func TestDigestTellsManifestsApart(t *testing.T) {
	t.Parallel()
	changes := map[string]func(*Manifest){
		"a command":      func(m *Manifest) { m.Services[0].Command += " -x" },
		"a file":         func(m *Manifest) { m.Files[1].Content += " " },
		"an environment": func(m *Manifest) { m.EnvironmentVars["HTTP_PROXY"] = "http://other" },
		"a watched name": func(m *Manifest) { m.WatchedEnvironmentVars = nil },
		"what is secret": func(m *Manifest) { m.Confidential = strings.Repeat("b", 64) },
		"a secret one":   func(m *Manifest) { m.ConfidentialEnvironment = strings.Repeat("b", 64) },
		"the daemon's":   func(m *Manifest) { m.Daemon.Debug = false },
		"one less":       func(m *Manifest) { m.Services = m.Services[:3] },
	}
	seen := map[string]string{sample().Digest(): "no change"}
	for name, change := range changes {
		m := sample()
		change(&m)
		if other, ok := seen[m.Digest()]; ok {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[m.Digest()] = name
	}
}

func TestConfigMapRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		data map[string]string
		want string
	}{
		"no services":             {map[string]string{"files": "[]"}, "key services is missing"},
		"no files":                {map[string]string{"services": "[]"}, "key files is missing"},
		"not JSON":                {map[string]string{"services": "[", "files": "[]"}, "key services:"},
		"something after":         {map[string]string{"services": "[] []", "files": "[]"}, "key services:"},
		"a field in another case": {map[string]string{"services": `[{"Name":"a"}]`, "files": "[]"}, `service ""`},
		"a negative priority": {map[string]string{"services": `[{"name":"a","priority":-1}]`, "files": "[]"},
			"key services:"},
		"null in a list": {map[string]string{"services": `[null]`, "files": "[]"}, `service ""`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := ManifestFromConfigMap(c.data)
			problem, ok := AsProblem(err)
			if !ok || problem.Reason != ReasonManifestInvalid {
				t.Fatalf("want ManifestInvalid, got %v", err)
			}
			if !strings.Contains(problem.Detail, c.want) {
				t.Errorf("want %q in %q", c.want, problem.Detail)
			}
		})
	}
}

// next returns the data of the sample as a later release may write it, with unknown keys and fields.
func next(t *testing.T) map[string]string {
	t.Helper()
	data, err := sample().Data()
	if err != nil {
		t.Fatal(err)
	}
	data[KeyServices] = strings.Replace(data[KeyServices], `{"name":"containerd"`,
		`{"cgroup":{"of":["another","release"]},"name":"containerd"`, 1)
	data["volumes"] = `[{"letter":"D"}]`
	return data
}

func TestWhatAnotherReleaseKnowsMoreIsIgnored(t *testing.T) {
	t.Parallel()
	data := next(t)
	got, err := ManifestFromConfigMap(data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sample(), got, cmpopts.EquateEmpty()); diff != "" {
		t.Error(diff)
	}
	version := "0.2.0-" + DataDigest(data)[:RevisionDigits]
	if !IsRevisionOfData(version, data) || IsRevisionOf(version, got) {
		t.Error("the revision's name does not cover the published data that this release ignores")
	}
	data["volumes"] = `[]`
	if IsRevisionOfData(version, data) {
		t.Error("a change of an unknown field goes unnoticed")
	}
}

func TestTheFilesOfAManifestThatCanNotBeUsedAreKnown(t *testing.T) {
	t.Parallel()
	data := next(t)
	data[KeyServices] = `[{"name":"kubelet","path":"C:\\k\\kubelet.exe","hostVariables":[{"name":"X","fact":"moon"}]}]`
	files, err := FilesFromConfigMap(data)
	if blobs := (Manifest{Files: files}).Blobs(); err != nil || len(blobs) != 1 ||
		blobs[0] != (Blob{Digest: digestA, Size: 3}) {
		t.Errorf("got %v, %v", blobs, err)
	}
	for _, bad := range []string{"", "{}", `[{"path":"C:\\k\\a.exe","sha256":"../a","size":3}]`,
		`[{"path":"C:\\k\\a.exe","sha256":"` + digestA + `"}]`} {
		if _, err = FilesFromConfigMap(map[string]string{KeyFiles: bad}); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestContractFormatIsRead(t *testing.T) {
	t.Parallel()
	// This is an older manifest, whose files have no content.
	m, err := ManifestFromConfigMap(map[string]string{
		"services": `[{"name":"kubelet","path":"C:\\k\\kubelet.exe","bootstrap":true,"priority":0},
			{"name":"kube-proxy","path":"C:\\k\\kube-proxy.exe --hostname NODE_NAME","nodeVariablesInCommand":[{"name":"NODE_NAME","nodeObjectJsonPath":"{.metadata.name}"}],"dependencies":["kubelet"],"bootstrap":false,"priority":1}]`,
		"files":                  `[]`,
		"environmentVars":        `{"NO_PROXY":".local"}`,
		"watchedEnvironmentVars": `["HTTP_PROXY","HTTPS_PROXY","NO_PROXY"]`,
	})
	if err != nil {
		t.Fatal(err)
	}
	if m.Services[1].NodeVariables[0].JSONPath != "{.metadata.name}" || m.EnvironmentVars["NO_PROXY"] != ".local" {
		t.Errorf("read %+v", m)
	}
	// The daemon runs no shell, so a manifest with scripts must be refused.
	data := map[string]string{
		"services": `[{"name":"kubelet","path":"C:\\k\\kubelet.exe","powershellPreScripts":[{"variableName":"X","path":"C:\\Temp\\x.ps1","NodeArgs":["{.metadata.name}"]}]}]`,
		"files":    `[]`,
	}
	if m, err = ManifestFromConfigMap(data); err != nil || IsRevisionOf("1-"+DataDigest(data)[:RevisionDigits], m) {
		t.Errorf("a manifest with scripts is accepted, or not parsed: %v", err)
	}
}

func FuzzManifestFromConfigMap(f *testing.F) {
	data, err := sample().Data()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data[KeyServices], data[KeyFiles], data[KeyEnvironment], data[KeyWatchedVarNames])
	f.Add("[]", "[]", "{}", "[]")
	f.Add(`[{"name":"a","dependencies":["b"]},{"name":"b","dependencies":["a"]}]`, "null", "null", "null")
	f.Fuzz(func(t *testing.T, services, files, environment, watched string) {
		m, err := ManifestFromConfigMap(map[string]string{KeyServices: services, KeyFiles: files,
			KeyEnvironment: environment, KeyWatchedVarNames: watched})
		if err != nil {
			if _, ok := AsProblem(err); !ok {
				t.Fatalf("the error has no reason: %v", err)
			}
			return
		}
		// An accepted manifest must survive encoding and decoding.
		data, err := m.Data()
		if err != nil {
			t.Fatal(err)
		}
		again, err := ManifestFromConfigMap(data)
		if err != nil {
			t.Fatalf("the encoded manifest is refused: %v", err)
		}
		if again.Digest() != m.Digest() {
			t.Fatal("the digest changed")
		}
	})
}

func TestA60_TheNetworkOfPodsIsPublishedAndHasAPartInTheRevision(t *testing.T) {
	t.Parallel()
	m := Manifest{Services: []Service{}, Files: []File{}, PodNetwork: "flannel.4096"}
	data, err := m.Data()
	if err != nil {
		t.Fatal(err)
	}
	back, err := ManifestFromConfigMap(data)
	if err != nil || back.HNSNetwork() != "flannel.4096" || back.Digest() != m.Digest() ||
		m.Digest() == (Manifest{}).Digest() {
		t.Errorf("%+v, %v", back, err)
	}
}
