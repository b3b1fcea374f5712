package blueprint_test

import (
	"encoding/json"
	"maps"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
)

// configured returns kubelet's configuration with a fragment merged into it, and the messages about the
// fragment.
func configured(t *testing.T, in blueprint.Input, text string) (map[string]any, blueprint.Desired, string) {
	t.Helper()
	in.Spec.Kubelet.Config = fragment(text)
	desired := render(t, in)
	var config map[string]any
	if err := json.Unmarshal([]byte(file(t, desired.Manifest, contract.PathKubeletConfig).Content),
		&config); err != nil {
		t.Fatal(err)
	}
	said := ""
	for _, p := range desired.Rejected {
		if p.Reason != contract.ReasonKubeletConfigRefused {
			t.Errorf("reason %s", p.Reason)
		}
		said += p.Detail
	}
	return config, desired, said
}

func TestAFragmentIsMergedOverTheDefaults(t *testing.T) {
	t.Parallel()
	plain, _, _ := configured(t, input(), `{}`)
	for name, test := range map[string]struct {
		text string
		want func(config map[string]any)
	}{
		"a number":            {`{"maxPods": 60}`, func(c map[string]any) { c["maxPods"] = 60.0 }},
		"a field that is new": {`{"podsPerCore": 20}`, func(c map[string]any) { c["podsPerCore"] = 20.0 }},
		"a zero":              {`{"eventRecordQPS": 0}`, func(c map[string]any) { c["eventRecordQPS"] = 0.0 }},
		"kind and version": {
			`{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 9}`,
			func(c map[string]any) { c["maxPods"] = 9.0 }},
		"memory stays guarded": {`{"evictionHard": {"nodefs.available": "5%"}}`,
			func(c map[string]any) { c["evictionHard"].(map[string]any)["nodefs.available"] = "5%" }},
		"another memory": {`{"evictionHard": {"memory.available": "1Gi"}}`, func(c map[string]any) {
			c["evictionHard"].(map[string]any)["memory.available"] = "1Gi"
		}},
		"one of what is reserved": {`{"systemReserved": {"memory": "4Gi"}}`,
			func(c map[string]any) { c["systemReserved"].(map[string]any)["memory"] = "4Gi" }},
		"soft eviction": {
			`{"evictionSoft": {"memory.available": "1Gi"}, "evictionSoftGracePeriod": {"memory.available": "1m"}}`,
			func(c map[string]any) {
				c["evictionSoft"], c["evictionSoftGracePeriod"] = map[string]any{"memory.available": "1Gi"},
					map[string]any{"memory.available": "1m"}
			}},
		"a gate": {`{"featureGates": {"WindowsGracefulNodeShutdown": false}}`, func(c map[string]any) {
			c["featureGates"].(map[string]any)["WindowsGracefulNodeShutdown"] = false
		}},
		"a gate that is locked to it": {`{"featureGates": {"NodeSwap": true}}`,
			func(c map[string]any) { c["featureGates"].(map[string]any)["NodeSwap"] = true }},
		"a gate with all that need it": {`{"featureGates": {"KubeletCrashLoopBackOffMax": false,
			"GracefulNodeShutdown": false, "GracefulNodeShutdownBasedOnPodPriority": false,
			"WindowsGracefulNodeShutdown": false}}`, func(c map[string]any) {
			maps.Copy(c["featureGates"].(map[string]any), map[string]any{"KubeletCrashLoopBackOffMax": false,
				"GracefulNodeShutdown": false, "GracefulNodeShutdownBasedOnPodPriority": false,
				"WindowsGracefulNodeShutdown": false})
		}},
		"a gate with what it needs": {`{"featureGates": {"GangScheduling": true, "GenericWorkload": true}}`,
			func(c map[string]any) {
				maps.Copy(c["featureGates"].(map[string]any), map[string]any{"GangScheduling": true,
					"GenericWorkload": true})
			}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, desired, said := configured(t, input(), test.text)
			raw, err := json.Marshal(plain)
			if err != nil {
				t.Fatal(err)
			}
			var want map[string]any
			if err = json.Unmarshal(raw, &want); err != nil {
				t.Fatal(err)
			}
			test.want(want)
			if said != "" || !reflect.DeepEqual(got, want) {
				t.Errorf("%s\n got %v\nwant %v", said, got, want)
			}
			if len(desired.KubeletFragment) == 0 {
				t.Error("the accepted fragment is not reported")
			}
		})
	}
}

func TestAFragmentThatWouldBreakNodesIsRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ text, says string }{
		"no object":                   {`[1]`, "it is [1], not an object"},
		"junk":                        {`{"maxPods": 1`, "JSON"},
		"a field that does not exist": {`{"maxPod": 60}`, `unknown field "maxPod"`},
		"a field in another case":     {`{"MaxPods": 60}`, `unknown field "MaxPods"`},
		"a field given twice":         {`{"maxPods": 60, "maxPods": 70}`, `duplicate field "maxPods"`},
		"a field of another type":     {`{"maxPods": "many"}`, "maxPods"},
		"a null":                      {`{"evictionHard": null}`, "evictionHard has a null"},
		"another kind":                {`{"kind": "KubeProxyConfiguration"}`, "kind is not KubeletConfiguration"},
		"another version":             {`{"apiVersion": "kubelet.config.k8s.io/v1"}`, "apiVersion is not"},
		"who may call kubelet": {`{"authentication": {"anonymous": {"enabled": true}}}`,
			"authentication is the operator's"},
		"the client CA": {`{"authentication": {"x509": {"clientCAFile": "x"}}}`,
			"authentication is the operator's"},
		"where the runtime is": {`{"containerRuntimeEndpoint": "x"}`,
			"containerRuntimeEndpoint is the operator's"},
		"the taint":                      {`{"registerWithTaints": []}`, "registerWithTaints is the operator's"},
		"cgroups":                        {`{"cgroupsPerQOS": true}`, "cgroupsPerQOS is the operator's"},
		"a cgroup of Linux":              {`{"cgroupRoot": "/"}`, "cgroupRoot has no meaning on Windows"},
		"DNS":                            {`{"clusterDNS": ["1.1.1.1"]}`, "clusterDNS is the operator's"},
		"swap":                           {`{"failSwapOn": false}`, "failSwapOn has no meaning"},
		"a policy that outlives kubelet": {`{"cpuManagerPolicy": "static"}`, "cpuManagerPolicy can't be changed"},
		"the log level":                  {`{"logging": {"verbosity": 9}}`, "logging is set by spec.logging"},
		"a directory":                    {`{"podLogsDir": "C:\\x"}`, "podLogsDir is a path of the operator's"},
		"two at once": {`{"clusterDNS": [], "port": 1}`,
			"clusterDNS is the operator's: a node depends on it; port is"},
		"no pods":                  {`{"maxPods": 0}`, "maxPods is 0"},
		"more pods than addresses": {`{"maxPods": 5000}`, "maxPods is 5000"},
		"memory eviction off":      {`{"evictionHard": {"memory.available": "0%"}}`, "would switch it off"},
		"a signal of Linux": {`{"evictionHard": {"nodefs.inodesFree": "5%"}}`,
			"no signal that Windows nodes have"},
		"an invalid threshold":  {`{"evictionHard": {"memory.available": "lots"}}`, "is not an amount"},
		"an invalid percentage": {`{"evictionHard": {"memory.available": "120%"}}`, "is not a percentage"},
		"soft without grace": {`{"evictionSoft": {"memory.available": "1Gi"}}`,
			"evictionSoftGracePeriod.memory.available is missing"},
		"grace without soft": {`{"evictionSoftGracePeriod": {"memory.available": "1m"}}`,
			"without evictionSoft.memory.available"},
		"an invalid amount": {`{"systemReserved": {"memory": "much"}}`,
			"systemReserved.memory is not an amount"},
		"an invalid resource": {`{"kubeReserved": {"pid": "5"}}`, "kubeReserved.pid is not cpu"},
		"image collection upside down": {`{"imageGCLowThresholdPercent": 90}`,
			"imageGCLowThresholdPercent is not less"},
		"ages upside down": {`{"imageMinimumGCAge": "2h", "imageMaximumGCAge": "1h"}`,
			"imageMaximumGCAge is not greater"},
		"a negative duration":            {`{"syncFrequency": "-1s"}`, "syncFrequency is negative"},
		"an invalid duration":            {`{"syncFrequency": "soon"}`, "soon"},
		"too little time for containers": {`{"runtimeRequestTimeout": "1s"}`, "runtimeRequestTimeout is less"},
		"one log file":                   {`{"containerLogMaxFiles": 1}`, "containerLogMaxFiles is 1"},
		"logs without a size":            {`{"containerLogMaxSize": "x"}`, "containerLogMaxSize is not a size"},
		"logs looked at too often":       {`{"containerLogMonitorInterval": "1s"}`, "less than 3s"},
		"parallel pulls in series": {`{"serializeImagePulls": true, "maxParallelImagePulls": 3}`,
			"maxParallelImagePulls is more than 1"},
		"a lease that lasts": {`{"nodeLeaseDurationSeconds": 3600}`, "nodeLeaseDurationSeconds is 3600"},
		"a status that is late": {`{"nodeStatusUpdateFrequency": "10m"}`,
			"nodeStatusUpdateFrequency is more"},
		"time for pods when Windows shuts down": {`{"shutdownGracePeriod": "30s"}`,
			"shutdownGracePeriod is not supported: with it, kubelet changes the registry value PreshutdownOrder"},
		"time for critical pods": {`{"shutdownGracePeriodCriticalPods": "10s"}`,
			"shutdownGracePeriodCriticalPods is not supported: with it, kubelet changes"},
		"a restart period of a day": {`{"crashLoopBackOff": {"maxContainerRestartPeriod": "24h"}}`,
			"is not from 1s to 5m"},
		"an invalid cipher": {`{"tlsCipherSuites": ["ROT13"]}`, "tlsCipherSuites has ROT13"},
		"an old TLS":        {`{"tlsMinVersion": "VersionTLS10"}`, "tlsMinVersion is not"},
		"an invalid strategy": {`{"configMapAndSecretChangeDetectionStrategy": "Guess"}`,
			"is not Get, Cache or Watch"},
		"a gate that does not exist": {`{"featureGates": {"Flying": true}}`,
			"featureGates.Flying is not known to kubelet v1.36.3"},
		"a gate of another program": {`{"featureGates": {"ControllerManagerReleaseLeaderElectionLockOnExit": true}}`,
			"is not known to kubelet v1.36.3"},
		"a gate locked to the other": {`{"featureGates": {"NodeSwap": false}}`,
			"featureGates.NodeSwap is locked to true"},
		"a gate that serving depends on": {`{"featureGates": {"RotateKubeletServerCertificate": false}}`,
			"is the operator's"},
		"a gate that one needs which is on by default": {`{"featureGates": {"GracefulNodeShutdown": false}}`,
			"featureGates.GracefulNodeShutdown is off, but kubelet v1.36.3 has gates on that need it: " +
				"GracefulNodeShutdownBasedOnPodPriority, WindowsGracefulNodeShutdown"},
		"one of three gates that one needs": {`{"featureGates": {"PodLevelResources": false}}`,
			"PodLevelResources is off, but kubelet v1.36.3 has gates on that need it: InPlacePodLevelResourcesVerticalScaling"},
		"a gate that several need": {`{"featureGates": {"NodeDeclaredFeatures": false}}`,
			"NodeDeclaredFeatures is off, but kubelet v1.36.3 has gates on that need it: ExtendWebSocketsToKubelet, "},
		"a gate without the one that it needs": {`{"featureGates": {"GangScheduling": true}}`,
			"GenericWorkload is off, but kubelet v1.36.3 has gates on that need it: GangScheduling"},
		"a field without its gate": {`{"crashLoopBackOff": {"maxContainerRestartPeriod": "60s"},
			"featureGates": {"KubeletCrashLoopBackOffMax": false}}`,
			"crashLoopBackOff.maxContainerRestartPeriod needs featureGates.KubeletCrashLoopBackOffMax, which is off"},
		"a gate of Kubernetes that is new": {`{"featureGates": {"` + newIn137 + `": true}}`,
			"is not known to kubelet v1.36.3"},
		"more than anybody needs": {`{"tlsCipherSuites": ["` + strings.Repeat("x", 70<<10) + `"]}`,
			"larger than 64 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := render(t, input())
			in := input()
			in.AcceptedKubelet = nil
			_, desired, said := configured(t, in, test.text)
			if !strings.Contains(said, test.says) || len(said) > 1000 {
				t.Errorf("the message is %q, want %q", said, test.says)
			}
			if desired.Revision != plain.Revision || len(desired.KubeletFragment) > 0 {
				t.Error("a part of the refused fragment is in effect")
			}
		})
	}
}

// newIn137 is a feature gate that version 1.36 does not have.
const newIn137 = "AtomicWriteVolumeUserFields"

// Each row has a value of the wrong type. The message must have the field, its value, and the type that kubelet
// expects.
func TestA62_AValueOfTheWrongTypeIsNamedWithWhatIsExpected(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		`{"maxPods": "sixty"}`:                 `maxPods is "sixty", not a whole number`,
		`{"maxPods": 1.5}`:                     `maxPods is 1.5, not a whole number`,
		`{"maxPods": 3000000000}`:              `maxPods is 3000000000, not a whole number below 2^31`,
		`{"registryPullQPS": "5"}`:             `registryPullQPS is "5", not a whole number`,
		`{"serializeImagePulls": "yes"}`:       `serializeImagePulls is "yes", not true or false`,
		`{"syncFrequency": 10}`:                `syncFrequency is 10, not a duration such as "30s"`,
		`{"syncFrequency": "soon"}`:            `syncFrequency is "soon", not a duration such as "30s"`,
		`{"imageMaximumGCAge": {}}`:            `imageMaximumGCAge is {}, not a duration`,
		`{"containerLogMaxSize": 5000000}`:     `containerLogMaxSize is 5000000, not text in quotes`,
		`{"systemReserved": {"cpu": 5}}`:       `systemReserved.cpu is 5, not text in quotes`,
		`{"evictionHard": "5%"}`:               `evictionHard is "5%", not an object`,
		`{"featureGates": {"NodeSwap": "on"}}`: `featureGates.NodeSwap is "on", not true or false`,
		`{"tlsCipherSuites": "A"}`:             `tlsCipherSuites is "A", not a list of text in quotes`,
		`{"crashLoopBackOff": {"maxContainerRestartPeriod": 5}}`: `crashLoopBackOff.maxContainerRestartPeriod is 5, not ` +
			`a duration`,
		`{"crashLoopBackOff": 5}`: `crashLoopBackOff is 5, not an object`,
		`{"maxPods": "sixty", "podsPerCore": "ten", "syncFrequency": "soon"}`: `maxPods is "sixty", not a whole number ` +
			`below 2^31; podsPerCore is "ten", not a whole number below 2^31; syncFrequency is`,
		`["maxPods"]`: `it is ["maxPods"], not an object`,
	} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			in := input()
			in.AcceptedKubelet = nil
			_, _, said := configured(t, in, text)
			if !strings.Contains(said, says) || strings.Contains(said, "json:") || strings.Contains(said, "Go ") {
				t.Errorf("the message is %q, want %q", said, says)
			}
		})
	}
	if _, _, said := configured(t, input(), `{"maxPods": "`+strings.Repeat("ä", 4000)+`"}`); len(said) > 300 ||
		!utf8.ValidString(said) {
		t.Errorf("the message repeats a long value: %d bytes", len(said))
	}
}

func TestTheLastGoodFragmentStaysWhileANewerOneIsRefused(t *testing.T) {
	t.Parallel()
	in := input()
	_, good, _ := configured(t, in, `{"maxPods": 60}`)
	in.AcceptedKubelet = good.KubeletFragment
	config, desired, said := configured(t, in, `{"maxPods": 60, "port": 1}`)
	if config["maxPods"] != 60.0 || desired.Revision != good.Revision || said == "" {
		t.Errorf("maxPods is %v, the message is %q", config["maxPods"], said)
	}
	if string(desired.KubeletFragment) != string(good.KubeletFragment) {
		t.Errorf("the fragment in effect is %s", desired.KubeletFragment)
	}
	in.AcceptedKubelet = []byte(`{"port": 1}`) // a user changed the status
	if config, _, _ = configured(t, in, `{"port": 2}`); config["maxPods"] != 250.0 || config["port"] != nil {
		t.Errorf("an invalid accepted fragment is used: %v", config)
	}
	const earlier = `{"featureGates": {"GracefulNodeShutdown": false}}` // earlier releases accepted this fragment
	in.AcceptedKubelet = []byte(earlier)
	if config, desired, said = configured(t, in, earlier); said == "" || len(desired.KubeletFragment) > 0 ||
		config["featureGates"].(map[string]any)["GracefulNodeShutdown"] != nil {
		t.Errorf("kubelet would not start: the message is %q, the fragment is %s", said, desired.KubeletFragment)
	}
	in.AcceptedKubelet = good.KubeletFragment
	if config, _, said = configured(t, in, `{}`); config["maxPods"] != 250.0 || said != "" {
		t.Errorf("the deleted fragment is still in effect: %v, %s", config["maxPods"], said)
	}
}

func TestARestartPeriodIsRefusedForAKubeletBefore135(t *testing.T) {
	t.Parallel()
	for version, says := range map[string]string{"v1.34.4": "which is off in kubelet v1.34.4", "v1.35.4": "", "v1.37.2": ""} {
		in := input()
		in.Facts.KubernetesVersion, in.Payload = "v1.37.2", withVersion(contract.PathKubelet, version)
		_, _, said := configured(t, in, `{"crashLoopBackOff": {"maxContainerRestartPeriod": "60s"}}`)
		if !strings.Contains(said, says) || says == "" && said != "" {
			t.Errorf("%s: the message is %q", version, said)
		}
	}
}

func TestEveryFieldOfKubeletsConfigurationIsDecidedUpon(t *testing.T) {
	t.Parallel()
	for _, f := range reflect.VisibleFields(reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]()) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" || f.Anonymous {
			continue
		}
		if !blueprint.KubeletFieldIsDecided(name) {
			t.Errorf("kubeletFields lacks the field %s: decide whether users may set it", name)
		}
	}
}

func FuzzFragment(f *testing.F) {
	for _, seed := range []string{`{}`, `{"maxPods": 60}`, `{"evictionHard": {"memory.available": "0"}}`,
		`{"featureGates": {"A": true}}`, `null`, `[`, `{"maxPods": 1e99}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		in := input()
		in.Spec.Kubelet.Config = fragment(string(raw))
		desired, err := blueprint.Render(in)
		if err != nil {
			t.Fatalf("a fragment prevents the rendering: %v", err)
		}
		var config kubeletconfigv1beta1.KubeletConfiguration
		if err = json.Unmarshal([]byte(file(t, desired.Manifest, contract.PathKubeletConfig).Content),
			&config); err != nil {
			t.Fatal(err)
		}
		if config.Authentication.X509.ClientCAFile != contract.PathKubeletCA ||
			config.Authentication.Anonymous.Enabled == nil || *config.Authentication.Anonymous.Enabled ||
			len(config.RegisterWithTaints) != 1 || config.ContainerRuntimeEndpoint == "" ||
			config.EvictionHard["memory.available"] == "" {
			t.Fatalf("%q changed a field that nodes depend on: %+v", raw, config)
		}
		// If the accepted fragment is rendered as the user's fragment, the result must be the same.
		in.Spec.Kubelet.Config = fragment(string(desired.KubeletFragment))
		if again := render(t, in); again.Revision != desired.Revision || len(again.Rejected) > 0 {
			t.Fatalf("%q gives revision %s, and the second time %s: %v",
				raw, desired.Revision, again.Revision, again.Rejected)
		}
	})
}
