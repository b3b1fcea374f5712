package blueprint_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/payload"
)

func reasons(err error) (all []contract.Reason) {
	var walk func(err error)
	walk = func(err error) {
		if p, ok := err.(*contract.Problem); ok { //nolint:errorlint // the walk unwraps errors itself
			all = append(all, p.Reason)
		}
		if joined, ok := err.(interface{ Unwrap() []error }); ok {
			for _, e := range joined.Unwrap() {
				walk(e)
			}
		}
	}
	walk(err)
	slices.Sort(all)
	return slices.Compact(all)
}

func TestKubeletSearchesInTheDomainOfTheCluster(t *testing.T) {
	t.Parallel()
	in := input()
	before, plain, _ := configured(t, in, `{}`)
	in.Facts.Domain = "k8s.example.com"
	after, other, _ := configured(t, in, `{}`)
	if before["clusterDomain"] != "cluster.local" || after["clusterDomain"] != in.Facts.Domain {
		t.Errorf("the domain is %v, and then %v", before["clusterDomain"], after["clusterDomain"])
	}
	if plain.Revision == other.Revision {
		t.Error("the change is not part of the revision")
	}
	if got := other.Manifest.ClusterDomain(); got != in.Facts.Domain {
		t.Errorf("the published domain is %q", got)
	}
}

func TestRenderSaysWhatItCannotWorkWith(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*blueprint.Input)
		want   []contract.Reason
	}{
		"no salt": {func(in *blueprint.Input) { in.Salt = nil },
			[]contract.Reason{contract.ReasonManifestInvalid}},
		"a payload without kubelet": {func(in *blueprint.Input) { in.Payload = lacking("kubelet.exe") },
			[]contract.Reason{contract.ReasonPayloadMissing}},
		"an empty payload": {func(in *blueprint.Input) { in.Payload = payload.Manifest{} },
			[]contract.Reason{contract.ReasonPayloadMissing}},
		"a kubelet that is too new": {func(in *blueprint.Input) {
			in.Payload = withVersion(contract.PathKubelet,
				"v1.37.0")
		}, []contract.Reason{contract.ReasonVersionUnsupported}},
		"a payload file on a managed path": {func(in *blueprint.Input) {
			in.Payload.Files = append(in.Payload.Files,
				payload.File{Name: "x", Size: 1, Digest: strings.Repeat("0", 64), Path: `c:\K\kubelet.conf`})
		}, []contract.Reason{contract.ReasonManifestInvalid}},
		"several things at once": {func(in *blueprint.Input) {
			in.Facts.KubernetesVersion, in.Payload = "v1.20.0", lacking("containerd.exe")
		}, []contract.Reason{contract.ReasonPayloadMissing, contract.ReasonVersionUnsupported}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input()
			test.change(&in)
			_, err := blueprint.Render(in)
			if got := reasons(err); !slices.Equal(got, test.want) {
				t.Errorf("got %v from %v, want %v", got, err, test.want)
			}
			if p, ok := contract.AsProblem(err); !ok || p.Detail == "" {
				t.Errorf("the error has no problem: %v", err)
			}
		})
	}
}

func TestRenderSaysWhatIsOff(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change   func(*blueprint.Input)
		features []payload.Feature
		without  []string
	}{
		"nothing, with a complete payload": {func(*blueprint.Input) {}, nil, []string{contract.ServiceCloudNode}},
		"the networks, without hybrid-overlay": {
			func(in *blueprint.Input) { in.Payload = lacking("hybrid-overlay-node.exe") },
			[]payload.Feature{payload.FeaturePodNetwork, payload.FeatureServiceNetwork},
			[]string{contract.ServiceHybridOverlay, contract.ServiceKubeProxy},
		},
		"the pod network, without its CNI plugin": {
			func(in *blueprint.Input) { in.Payload = lacking("win-overlay.exe") },
			[]payload.Feature{payload.FeaturePodNetwork}, nil,
		},
		"services, without kube-proxy": {
			func(in *blueprint.Input) { in.Payload = lacking("kube-proxy.exe") },
			[]payload.Feature{payload.FeatureServiceNetwork}, []string{contract.ServiceKubeProxy},
		},
		"metrics, without their exporter": {
			func(in *blueprint.Input) { in.Payload = lacking("windows_exporter.exe") },
			[]payload.Feature{payload.FeatureMetrics}, []string{contract.ServiceExporter},
		},
		"storage, without csi-proxy": {
			func(in *blueprint.Input) { in.Payload = lacking("csi-proxy.exe") },
			[]payload.Feature{payload.FeatureStorage}, []string{contract.ServiceCSIProxy},
		},
		"Azure's node manager, on Azure": {
			func(in *blueprint.Input) {
				in.Facts.Platform, in.Payload = contract.PlatformAzure, lacking("azure-cloud-node-manager.exe")
			}, []payload.Feature{payload.FeatureCloudNode}, []string{contract.ServiceCloudNode},
		},
		"image credentials, on AWS without the program": {
			func(in *blueprint.Input) {
				in.Facts.Platform, in.Payload = contract.PlatformAWS, lacking("ecr-credential-provider.exe")
				in.Facts.CredentialProviders = credentialProviders()
			}, []payload.Feature{payload.FeatureImageCredential}, nil,
		},
		"image credentials, on AWS without their configuration": {
			func(in *blueprint.Input) { in.Facts.Platform = contract.PlatformAWS },
			[]payload.Feature{payload.FeatureImageCredential}, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input()
			test.change(&in)
			desired := render(t, in)
			var features []payload.Feature
			for _, off := range desired.Off {
				features = append(features, off.Feature)
				if off.Reason == "" || strings.Contains(off.Reason, "secret") {
					t.Errorf("%s is off because of %q", off.Feature, off.Reason)
				}
			}
			if !slices.Equal(features, test.features) {
				t.Errorf("off: %v, want %v", features, test.features)
			}
			for _, s := range desired.Manifest.Services {
				if slices.Contains(test.without, s.Name) {
					t.Errorf("service %s is there", s.Name)
				}
			}
		})
	}
}

func TestThePayloadsOwnWordsExplainWhatItLacks(t *testing.T) {
	t.Parallel()
	in := input()
	in.Payload = lacking("csi-proxy.exe")
	in.Payload.Missing = []payload.Missing{{Name: "csi-proxy.exe", Reason: "not on the module proxy"}}
	if got, want := render(t, in).Off[0].Reason,
		"the payload lacks csi-proxy.exe (not on the module proxy)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestProgramsOfOtherPlatformsAreNotShipped(t *testing.T) {
	t.Parallel()
	m := render(t, input()).Manifest
	for _, f := range m.Files {
		if f.Path == contract.PathECRProvider || f.Path == contract.PathAzureNodeManager {
			t.Errorf("the manifest has %s", f.Path)
		}
	}
}

func TestTheDaemonsOwnProgramComesWithTheManifestAndRestartsNothing(t *testing.T) {
	t.Parallel()
	in := input()
	m := render(t, in).Manifest
	program, ok := m.DaemonProgram()
	want := in.Payload.Files[slices.IndexFunc(in.Payload.Files,
		func(f payload.File) bool { return f.Path == contract.PathDaemon })]
	if !ok || program.Digest != want.Digest || program.Size != want.Size || len(program.Services) > 0 {
		t.Errorf("the manifest has %+v, the payload %+v", program, want)
	}
}

func TestFeatureGatesAreNamedUntilTheyAreGenerallyAvailable(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		path, version, config string
		has, hasNot           []string
	}{
		"kubelet 1.35": {contract.PathKubelet, "v1.35.2", contract.PathKubeletConfig,
			[]string{"NodeLogQuery", "RotateKubeletServerCertificate"}, nil},
		"kubelet 1.36": {contract.PathKubelet, "v1.36.0", contract.PathKubeletConfig,
			[]string{"RotateKubeletServerCertificate"}, []string{"NodeLogQuery"}},
		"proxy 1.33": {contract.PathKubeProxy, "v1.33.9", contract.PathKubeProxyConfig,
			[]string{"WinDSR", "WinOverlay"}, nil},
		"proxy 1.34": {contract.PathKubeProxy, "v1.34.0", contract.PathKubeProxyConfig, nil,
			[]string{"WinDSR", "WinOverlay"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input()
			in.Payload = withVersion(test.path, test.version)
			got := file(t, render(t, in).Manifest, test.config).Content
			for _, gate := range test.has {
				if !strings.Contains(got, gate) {
					t.Errorf("%s is missing in %s", gate, got)
				}
			}
			for _, gate := range test.hasNot {
				if strings.Contains(got, gate) {
					t.Errorf("%s is in %s", gate, got)
				}
			}
		})
	}
}

func TestASkewOfThreeMinorVersionsIsAllowed(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		server, kubelet string
		ok              bool
	}{
		"the same":                       {"v1.36.3", "v1.36.3", true},
		"a newer patch":                  {"v1.36.0", "v1.36.3", true},
		"three older":                    {"v1.36.3", "v1.33.0", true},
		"three older, past a tenth":      {"v1.40.0", "v1.37.0", true},
		"three older, over a hundred":    {"v1.101.0", "v1.98.1", true},
		"a server of OpenShift":          {"v1.36.3+1a2b3c4", "v1.36.1", true},
		"a release candidate":            {"v1.37.0-rc.0", "v1.36.3", true},
		"four older":                     {"v1.36.3", "v1.32.9", false},
		"one newer":                      {"v1.36.9", "v1.37.0", false},
		"ten newer, as a fraction older": {"v1.4.0", "v1.36.0", false},
		"another major version":          {"v2.36.0", "v1.36.0", false},
		"a server without a version":     {"", "v1.36.0", false},
		"a kubelet without a version":    {"v1.36.0", "stand-in", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p := blueprint.Fitting(test.server, payload.Manifest{Files: versions("kubelet.exe", test.kubelet)})
			if (p == nil) != test.ok {
				t.Errorf("got %v", p)
			}
			if p != nil && p.Reason != contract.ReasonVersionUnsupported {
				t.Errorf("reason %s", p.Reason)
			}
		})
	}
}

func TestTheVersionFitsTheNameOfAConfigMap(t *testing.T) {
	t.Parallel()
	for operator, want := range map[string]string{
		"0.1.0":             "0.1.0-",
		"v1.2.3-rc.1+Build": "v1.2.3-rc.1-build-",
		"(devel)":           "devel-",
		"":                  "0.0.0-",
		"1..2.-3":           "1.2-3-",
	} {
		t.Run(operator, func(t *testing.T) {
			t.Parallel()
			in := input()
			in.OperatorVersion = operator
			desired := render(t, in)
			digits, ok := strings.CutPrefix(desired.Revision, want)
			if !ok || digits != desired.Manifest.Digest()[:10] {
				t.Errorf("version %q, digest %s", desired.Revision, desired.Manifest.Digest())
			}
			if desired.ConfigMapName() != "windows-services-"+desired.Revision {
				t.Errorf("name %q", desired.ConfigMapName())
			}
		})
	}
}

func TestRestartsNamesWhatPodsWouldFeel(t *testing.T) {
	t.Parallel()
	all := []string{"containerd", "hybrid-overlay-node", "kube-proxy", "kubelet"}
	for name, test := range map[string]struct {
		change func(*blueprint.Input)
		want   []string
		drains bool
	}{
		"nothing changed": {func(*blueprint.Input) {}, nil, false},
		"kubelet's client CA": {func(in *blueprint.Input) { in.Facts.KubeletCA = certificate("rotated") }, nil,
			false},
		"the API server's CA": {func(in *blueprint.Input) { in.Facts.BootstrapCA = certificate("rotated") },
			[]string{"hybrid-overlay-node", "kube-proxy", "kubelet"}, true},
		"a new exporter": {func(in *blueprint.Input) { changed(in, "windows_exporter.exe") }, nil, false},
		"a new containerd": {func(in *blueprint.Input) { changed(in, "containerd.exe") },
			[]string{"containerd"}, true},
		"a new CNI plugin": {func(in *blueprint.Input) { changed(in, "win-overlay.exe") }, nil, false},
		"the program that writes": {func(in *blueprint.Input) { changed(in, "kube-log-runner.exe") },
			[]string{"kube-proxy", "kubelet"}, true},
		"another log size": {func(in *blueprint.Input) { in.Logging = blueprint.Logging{} },
			[]string{"hybrid-overlay-node"}, false},
		"another flush interval": {func(in *blueprint.Input) { in.Logging.FlushInterval = time.Hour },
			[]string{"kube-proxy", "kubelet"}, false},
		"more in the logs": {func(in *blueprint.Input) { in.Spec.Logging.Debug = true }, all, true},
		"a proxy":          {func(in *blueprint.Input) { in.Facts.Proxy.HTTP = "http://p" }, all, false},
		"a proxy and a containerd": {func(in *blueprint.Input) {
			in.Facts.Proxy.HTTP = "http://p"
			changed(in,
				"containerd.exe")
		}, all, true},
		"the network's program gone": {func(in *blueprint.Input) { in.Payload = lacking("hybrid-overlay-node.exe") },
			[]string{"hybrid-overlay-node", "kube-proxy"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			in := input()
			test.change(&in)
			before, after := render(t, input()).Manifest, render(t, in).Manifest
			if got := blueprint.Restarts(before, after); !slices.Equal(got, test.want) {
				t.Errorf("restarts %v, want %v", got, test.want)
			}
			if got := blueprint.Drains(before, after); got != test.drains {
				t.Errorf("drains %v, want %v", got, test.drains)
			}
		})
	}
}

// changed changes the digest of one payload file.
func changed(in *blueprint.Input, name string) {
	for i := range in.Payload.Files {
		if in.Payload.Files[i].Name == name {
			in.Payload.Files[i].Digest = strings.Repeat("ab", 32)
		}
	}
}

func TestSettingsOfTheEnvironment(t *testing.T) {
	t.Parallel()
	lookup := func(values map[string]string) func(string) (string, bool) {
		return func(name string) (string, bool) { value, ok := values[name]; return value, ok }
	}
	t.Run("nothing set gives the defaults", func(t *testing.T) {
		t.Parallel()
		got, err := blueprint.LoggingFromEnvironment(lookup(nil))
		if err != nil || got.FileSize.String() != "100Mi" || got.FileAge.Hours() != 168 || got.FlushInterval != 0 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("values are read", func(t *testing.T) {
		t.Parallel()
		got, err := blueprint.LoggingFromEnvironment(lookup(map[string]string{
			"SERVICES_LOG_FILE_SIZE": "10M", "SERVICES_LOG_FILE_AGE": "48h", "SERVICES_LOG_FLUSH_INTERVAL": "5s",
		}))
		if err != nil || got.FileSize.String() != "10M" || got.FileAge.Hours() != 48 ||
			got.FlushInterval.Seconds() != 5 {
			t.Errorf("got %+v, %v", got, err)
		}
	})
	t.Run("what can't be read is named and replaced by the default", func(t *testing.T) {
		t.Parallel()
		got, err := blueprint.LoggingFromEnvironment(lookup(map[string]string{
			"SERVICES_LOG_FILE_SIZE": "-1", "SERVICES_LOG_FILE_AGE": "a week", "SERVICES_LOG_FLUSH_INTERVAL": "-5s",
		}))
		if err == nil || got.FileSize.String() != "100Mi" || got.FileAge.Hours() != 168 {
			t.Errorf("got %+v, %v", got, err)
		}
		for _, name := range []string{"SERVICES_LOG_FILE_SIZE", "SERVICES_LOG_FILE_AGE",
			"SERVICES_LOG_FLUSH_INTERVAL"} {
			if err != nil && !strings.Contains(err.Error(), name) {
				t.Errorf("the error lacks %s: %v", name, err)
			}
		}
	})
	t.Run("the proxy is read and trimmed", func(t *testing.T) {
		t.Parallel()
		got := blueprint.ProxyFromEnvironment(lookup(map[string]string{"HTTP_PROXY": " http://p\n", "NO_PROXY": ""}))
		if got != (blueprint.Proxy{HTTP: "http://p"}) {
			t.Errorf("got %+v", got)
		}
	})
}

func TestCanonicalAPIServer(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"https://API-int.example.com:6443":  "https://api-int.example.com:6443",
		"https://10.0.0.1:6443/":            "https://10.0.0.1:6443",
		"https://api.example.com":           "https://api.example.com",
		"https://[fd00::1]:6443":            "https://[fd00::1]:6443",
		"https://[fd00::1]":                 "https://[fd00::1]",
		"http://api.example.com:6443":       "",
		"https://user:pass@api.example.com": "",
		"https://api.example.com/path":      "",
		"https://api.example.com?x=1":       "",
		"https://api.example.com:99999":     "",
		"https://a b":                       "",
		"https://-a":                        "",
		"https://":                          "",
		"":                                  "",
	} {
		t.Run(raw, func(t *testing.T) {
			t.Parallel()
			got, err := blueprint.CanonicalAPIServer(raw)
			if got != want || (err == nil) != (want != "") {
				t.Errorf("got %q, %v; want %q", got, err, want)
			}
			if err != nil && strings.Contains(err.Error(), "pass") {
				t.Errorf("the error has the password: %v", err)
			}
		})
	}
}

// When a log reaches klog's size limit, klog opens the file again, and no longer appends to it. If the daemon then
// truncated the file, the file would become sparse. So only the daemon limits logs. Azure's node manager, kubelet and
// kube-proxy write only to standard error.
func TestA38_EachServiceHasALogThatIsListed(t *testing.T) {
	t.Parallel()
	in := input()
	in.Facts.Platform = contract.PlatformAzure
	for _, service := range render(t, in).Manifest.Services {
		file := contract.LogFile(service.Name)
		if service.Log == nil || service.Log.Path != file || !strings.Contains(service.Command, file) {
			t.Errorf("%s has the log %+v and the command %s, want %s", service.Name, service.Log, service.Command, file)
		}
		if !slices.Contains(contract.LoggingServices(), service.Name) {
			t.Errorf("%s has no listed log: nothing creates its directory or shows it", service.Name)
		}
	}
}

func TestA44_CSIProxyLeavesTheLimitOfItsLogToTheDaemon(t *testing.T) {
	t.Parallel()
	desired, err := blueprint.Render(input())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range desired.Manifest.Services {
		if s.Name == contract.ServiceCSIProxy && !strings.Contains(s.Command, " -log_file_max_size=0") {
			t.Errorf("the command is %s", s.Command)
		}
	}
}
