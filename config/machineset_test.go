package config_test

import (
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	machinev1 "github.com/openshift/api/machine/v1"
	machinev1beta1 "github.com/openshift/api/machine/v1beta1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	sigsyaml "sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/inventory"
	"github.com/windows-nodes/wmco/lab/cluster"
)

// machineSets is the beginning of the names of the example files, one for each cloud.
const machineSets = "samples/machineset-"

// suffix simulates the suffix that the MachineSet controller adds to a set's name for each of its Machines.
const suffix = "-abcde"

// provider is the provider spec that a cloud's machine controller reads.
type provider struct {
	spec any
	kind string
	// version is the API version of the spec.
	version string
}

func providers() map[contract.Platform]provider {
	v1beta1, v1 := machinev1beta1.GroupVersion.String(), machinev1.GroupVersion.String()
	return map[contract.Platform]provider{
		contract.PlatformAWS:   {&machinev1beta1.AWSMachineProviderConfig{}, "AWSMachineProviderConfig", v1beta1},
		contract.PlatformAzure: {&machinev1beta1.AzureMachineProviderSpec{}, "AzureMachineProviderSpec", v1beta1},
		contract.PlatformGCP:   {&machinev1beta1.GCPMachineProviderSpec{}, "GCPMachineProviderSpec", v1beta1},
		contract.PlatformVSphere: {&machinev1beta1.VSphereMachineProviderSpec{}, "VSphereMachineProviderSpec",
			v1beta1},
		contract.PlatformNutanix: {&machinev1.NutanixMachineProviderConfig{}, "NutanixMachineProviderConfig", v1},
	}
}

// example reads the example MachineSet of a platform.
func example(t *testing.T, platform contract.Platform) *machinev1beta1.MachineSet {
	t.Helper()
	for _, m := range manifests(t) {
		if set, ok := m.object.(*machinev1beta1.MachineSet); ok && m.file == machineSets+string(platform)+".yaml" {
			return set
		}
	}
	t.Fatalf("there is no MachineSet for %s", platform)
	return nil
}

func TestEveryCloudsMachineSetIsWhatItsMachineControllerReads(t *testing.T) {
	t.Parallel()
	for platform, p := range providers() {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			value := example(t, platform).Spec.Template.Spec.ProviderSpec.Value
			if err := sigsyaml.UnmarshalStrict(value.Raw, p.spec); err != nil {
				t.Fatalf("decoding the provider spec: %v", err)
			}
			spec := reflect.ValueOf(p.spec).Elem()
			if meta := spec.FieldByName("TypeMeta").Interface().(metav1.TypeMeta); meta.Kind != p.kind ||
				meta.APIVersion != p.version {
				t.Errorf("the provider spec is a %s of %s, want %s of %s",
					meta.Kind, meta.APIVersion, p.kind, p.version)
			}
			for field, want := range map[string]string{"UserDataSecret": contract.UserDataSecret,
				"CredentialsSecret": ""} {
				secret := spec.FieldByName(field)
				if secret.IsNil() || want != "" && secret.Elem().FieldByName("Name").String() != want {
					t.Errorf("%s has the wrong value", field)
				}
			}
		})
	}
}

func TestEveryCloudsMachineSetMakesMachinesThatBecomeNodes(t *testing.T) {
	t.Parallel()
	for platform := range providers() {
		t.Run(string(platform), func(t *testing.T) {
			t.Parallel()
			set := example(t, platform)
			labels := set.Spec.Template.Labels
			if labels[contract.MachineOSLabel] != contract.OSIDWindows ||
				set.Namespace != contract.MachineAPINamespace {
				t.Error("the operator would ignore its Machines")
			}
			if _, ok := set.Spec.Template.Spec.Labels[contract.WorkerLabel]; !ok {
				t.Error("its nodes are not labelled as workers")
			}
			for key, value := range set.Spec.Selector.MatchLabels {
				if labels[key] != value {
					t.Errorf("the set does not select its own Machines by %s", key)
				}
			}
			if labels["machine.openshift.io/cluster-api-machineset"] != set.Name {
				t.Error("its Machines have the name of another set")
			}
			size := set.Annotations
			if size["machine.openshift.io/vCPU"] == "" || size["machine.openshift.io/memoryMb"] == "" ||
				!strings.Contains(size["capacity.cluster-autoscaler.kubernetes.io/labels"], "kubernetes.io/os=windows") ||
				size["capacity.cluster-autoscaler.kubernetes.io/taints"] != "os=Windows:NoSchedule" {
				t.Errorf("an autoscaler can't scale the set from zero: %v", size)
			}
			reading := inventory.ReadMachine(inventory.Machine{
				Name: set.Name + suffix, Namespace: set.Namespace, Phase: inventory.MachineProvisioned,
				Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.7"}},
			}, platform, nil)
			if reading.Entry == nil {
				t.Errorf("a Machine of the set would get no instance: %+v", reading)
			}
			if platform == contract.PlatformAzure && len(set.Name+suffix) > 15 {
				t.Error("the name is too long for a Windows machine on Azure")
			}
		})
	}
}

// A real API server with OpenShift's own CRD finds more errors than a strict decoder, such as forbidden values.
func TestARealAPIServerTakesEveryCloudsMachineSet(t *testing.T) {
	t.Parallel()
	lab := own(t)
	dirs, err := cluster.OpenShiftCRDDirs(t.Context(), "machine/v1beta1")
	if err != nil {
		t.Fatal(err)
	}
	if _, err = cluster.InstallCRDs(t.Context(), lab.Admin(), cluster.CRDOptions{
		Paths: dirs, Names: []string{"machinesets.machine.openshift.io"}, Filter: cluster.OpenShiftDefault,
	}); err != nil {
		t.Fatal(err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineAPINamespace}}
	if _, err = connect(t, lab.Admin()).CoreV1().Namespaces().Create(t.Context(), namespace,
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(machineSets + "*.yaml")
	if err != nil || len(files) != len(providers()) {
		t.Fatalf("there are %d files: %v", len(files), err)
	}
	slices.Sort(files)
	for _, file := range files {
		said := run(t, ".", lab.Binaries.Kubectl, "--kubeconfig", lab.Kubeconfig, "apply", "--server-side",
			"--validate=strict", "--dry-run=server", "-f", file)
		if strings.Contains(said, "Warning") {
			t.Errorf("%s: %s", file, said)
		}
	}
}
