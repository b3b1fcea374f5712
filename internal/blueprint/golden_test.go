package blueprint_test

import (
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/blueprint"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestRenderMakesWhatTheGoldenFilesSay(t *testing.T) {
	t.Parallel()
	on := func(platform blueprint.Platform, change func(*blueprint.Input)) blueprint.Input {
		in := input()
		in.Facts.Platform = platform
		if platform != blueprint.PlatformNone {
			in.Facts.CloudProvider = blueprint.CloudProviderExternal
		}
		if change != nil {
			change(&in)
		}
		return in
	}
	for name, in := range map[string]blueprint.Input{
		"none":    on(blueprint.PlatformNone, nil),
		"vsphere": on(blueprint.PlatformVSphere, nil),
		"nutanix": on(blueprint.PlatformNutanix, nil),
		"aws":     on(blueprint.PlatformAWS, func(in *blueprint.Input) { in.Facts.CredentialProviders = credentialProviders() }),
		"azure":   on(blueprint.PlatformAzure, nil),
		"gcp":     on(blueprint.PlatformGCP, nil),
		"everything-set": on(blueprint.PlatformNone, func(in *blueprint.Input) {
			in.Facts.VXLANPort = 9898
			in.Facts.Proxy = blueprint.Proxy{HTTP: "http://proxy.example.com:3128", HTTPS: "http://proxy.example.com:3128", None: ".cluster.local,172.30.0.0/16"}
			in.Spec.Logging.Debug = true
			in.Logging.FlushInterval = 5e9
		}),
		"bare-payload-from-the-module-proxy": on(blueprint.PlatformAzure, func(in *blueprint.Input) {
			in.ExporterTLS = false
			in.Payload = lacking("hybrid-overlay-node.exe", "csi-proxy.exe", "azure-cloud-node-manager.exe")
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := yaml.Marshal(render(t, in))
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", name+".yaml")
			if *update {
				if err = os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("run with -update if this is wanted (-want +got):\n%s", diff)
			}
		})
	}
}
