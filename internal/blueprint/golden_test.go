package blueprint_test

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/pmezard/go-difflib/difflib"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/mirror"
	"github.com/windows-nodes/wmco/test/blueprinttest"
)

// dayTwo sets everything that an administrator may set on day 2.
func dayTwo(t *testing.T, in *blueprint.Input) {
	t.Helper()
	in.Facts.Proxy = blueprint.Proxy{
		HTTP: "http://proxy.example.com:3128", HTTPS: "http://me:hunter2@proxy.example.com:3128",
		None: ".cluster.local,172.30.0.0/16",
	}
	in.Facts.Trust = []blueprint.Bundle{{Source: "trusted-ca",
		PEM: []byte(newCA(t, "proxy") + newCA(t, "other") + newCA(t, "proxy"))}}
	in.Facts.RegistryTrust = map[string]blueprint.Bundle{"m.example:5000": {Source: "registry CA",
		PEM: []byte(newCA(t, "registry"))}}
	in.Facts.PullSecret = []byte(`{"auths":{"m.example:5000":{"auth":"bWU6aHVudGVyMg=="}}}`)
	in.Facts.Mirrors = []mirror.Set{
		{Object: "ImageDigestMirrorSet/a", Kind: contract.PullByDigest, Source: "quay.io/a",
			Mirrors: []string{"m.example:5000/x", "n.example/a"}, Policy: mirror.NeverContactSource},
		{Object: "ImageTagMirrorSet/b", Kind: contract.PullByTag, Source: "*.docker.io",
			Mirrors: []string{"m.example:5000/hub"}},
	}
}

// refused sets every setting to an invalid value.
func refused(t *testing.T, in *blueprint.Input) {
	t.Helper()
	in.Facts.Proxy = blueprint.Proxy{HTTP: "proxy.example.com:3128", HTTPS: "http://me:hunter2@", None: "a\nb"}
	in.Facts.Trust = []blueprint.Bundle{
		{Source: "the bundle", PEM: []byte("junk")},
		{Source: "another", PEM: []byte(newCA(t, "old", "expired") +
			string(pair(t, "leaf", "issued").Certificate))},
	}
	in.Facts.PullSecret = []byte("no JSON")
	in.Spec.Logging.MaxSize = new(resource.MustParse("-1"))
	in.Spec.Kubelet.Config = fragment(`{"clusterDNS": ["1.2.3.4"], "maxPods": 70}`)
}

func fragment(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

// onFlannel switches a cluster to flannel.
func onFlannel(facts *blueprint.Facts) {
	facts.NetworkType, facts.HybridOverlay = blueprint.NetworkFlannel, false
	facts.Flannel = blueprint.Flannel{Network: netip.MustParsePrefix("10.244.0.0/16"), VNI: 4096}
	facts.DNS = netip.MustParseAddr("10.96.0.10")
	facts.ServiceNetwork = netip.MustParsePrefix("10.96.0.0/12")
}

var update = flag.Bool("update", false, "write the golden files anew")

func TestRenderMakesWhatTheGoldenFilesSay(t *testing.T) {
	t.Parallel()
	on := func(platform contract.Platform, change func(*blueprint.Input)) blueprint.Input {
		in := input()
		in.Facts.Platform = platform
		if platform != contract.PlatformNone {
			in.Facts.CloudProvider = blueprint.CloudProviderExternal
		}
		if change != nil {
			change(&in)
		}
		return in
	}
	cases := map[string]blueprint.Input{
		"none":    on(contract.PlatformNone, nil),
		"vsphere": on(contract.PlatformVSphere, nil),
		"nutanix": on(contract.PlatformNutanix, nil),
		"aws": on(contract.PlatformAWS,
			func(in *blueprint.Input) { in.Facts.CredentialProviders = credentialProviders() }),
		"azure": on(contract.PlatformAzure, nil),
		"gcp":   on(contract.PlatformGCP, nil),
		"external-network": on(contract.PlatformNone, func(in *blueprint.Input) {
			in.Facts.NetworkType, in.Facts.HybridOverlay = blueprint.NetworkExternal, false
			in.Facts.DNS = netip.MustParseAddr("10.96.0.10")
			in.Facts.ServiceNetwork = netip.MustParsePrefix("10.96.0.0/12")
		}),
		"flannel": on(contract.PlatformNone, func(in *blueprint.Input) { onFlannel(&in.Facts) }),
		"everything-set": on(contract.PlatformNone, func(in *blueprint.Input) {
			in.Facts.VXLANPort = 9898
			in.Spec.Logging.Debug = true
			in.Spec.Logging.FlushInterval = &metav1.Duration{Duration: 5 * time.Second}
			in.Spec.Logging.MaxSize = new(resource.MustParse("20Mi"))
			in.Spec.Kubelet.Config = fragment(
				`{"maxPods": 60, "evictionHard": {"nodefs.available": "5%"}, "systemReserved": {"memory": "3Gi"}}`)
			dayTwo(t, in)
		}),
		"everything-refused": on(contract.PlatformNone, func(in *blueprint.Input) {
			before := *in
			dayTwo(t, &before)
			before.Spec.Kubelet.Config = fragment(`{"maxPods": 60}`)
			in.Previous = render(t, before)
			in.AcceptedKubelet = in.Previous.KubeletFragment
			refused(t, in)
		}),
		"bare-payload-from-the-module-proxy": on(contract.PlatformAzure, func(in *blueprint.Input) {
			in.Payload = lacking("hybrid-overlay-node.exe", "csi-proxy.exe", "azure-cloud-node-manager.exe")
		}),
	}
	if *update {
		writeGolden(t, cases)
	}
	golden := blueprinttest.Golden(t, "testdata")
	for name, in := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(golden[name], text(t, in)); diff != "" {
				t.Errorf("run the test with -update if this change is intended (-want +got):\n%s", diff)
			}
		})
	}
}

// writeGolden updates the golden files: see blueprinttest.
func writeGolden(t *testing.T, cases map[string]blueprint.Input) {
	t.Helper()
	none := text(t, cases["none"])
	for name, in := range cases {
		file, content := "none.yaml", none
		if name != "none" {
			diff := difflib.UnifiedDiff{A: slices.Collect(strings.Lines(none)),
				B: slices.Collect(strings.Lines(text(t, in))), Context: 3}
			var err error
			if content, err = difflib.GetUnifiedDiffString(diff); err != nil {
				t.Fatal(err)
			}
			file = name + ".diff"
		}
		if err := os.WriteFile(filepath.Join("testdata", file), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// text returns the rendered output in the format of the golden files.
func text(t *testing.T, in blueprint.Input) string {
	t.Helper()
	rendered, err := yaml.Marshal(render(t, in))
	if err != nil {
		t.Fatal(err)
	}
	return string(rendered)
}

// kubelet runs programs in its volume plugin directory as SYSTEM. The default directory doesn't exist, and any
// Windows user may create it. So kubelet must get another directory.
func TestKubeletLooksForVolumePluginsWhereOnlyAdministratorsWrite(t *testing.T) {
	t.Parallel()
	for name, text := range blueprinttest.Golden(t, "testdata") {
		var golden struct{ Manifest contract.Manifest }
		if err := yaml.Unmarshal([]byte(text), &golden); err != nil {
			t.Fatal(err)
		}
		at := slices.IndexFunc(golden.Manifest.Files, func(f contract.File) bool {
			return f.Path == contract.PathKubeletConfig
		})
		if at < 0 {
			t.Fatalf("%s has no configuration for kubelet", name)
		}
		var config struct{ VolumePluginDir string }
		if err := yaml.Unmarshal([]byte(golden.Manifest.Files[at].Content), &config); err != nil ||
			!contract.Within(contract.DirK, config.VolumePluginDir) {
			t.Errorf("%s: volumePluginDir is %q, %v", name, config.VolumePluginDir, err)
		}
	}
}
