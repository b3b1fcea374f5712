package config_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/windows-nodes/wmco/internal/contract"
)

func TestA72_EachBuildThatAHostMayHaveHasARuntimeClass(t *testing.T) {
	t.Parallel()
	var want []nodev1.RuntimeClass
	for _, build := range contract.WindowsBuilds() {
		tolerates := func(value string) corev1.Toleration {
			return corev1.Toleration{Key: contract.TaintKey, Operator: corev1.TolerationOpEqual, Value: value,
				Effect: corev1.TaintEffectNoSchedule}
		}
		want = append(want, nodev1.RuntimeClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: "node.k8s.io/v1", Kind: "RuntimeClass"},
			ObjectMeta: metav1.ObjectMeta{Name: build.RuntimeClass}, Handler: contract.RuntimeClassHandler,
			Scheduling: &nodev1.Scheduling{
				NodeSelector: map[string]string{corev1.LabelOSStable: "windows", corev1.LabelArchStable: "amd64",
					contract.BuildLabel: build.Label()},
				Tolerations: []corev1.Toleration{tolerates(contract.TaintValue),
					tolerates(strings.ToLower(contract.TaintValue))},
			},
		})
	}
	text, err := os.ReadFile("runtimeclass/runtimeclass.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []nodev1.RuntimeClass
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		class := nodev1.RuntimeClass{}
		if err = yaml.UnmarshalStrict([]byte(document), &class); err != nil {
			t.Fatal(err)
		}
		got = append(got, class)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the RuntimeClasses are %+v, want %+v", got, want)
	}
}

// The workload guard sets these RuntimeClasses on pods. If one is missing, such a pod can't be created.
func TestA73_TheWorkloadGuardGivesClassesThatAreInstalled(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("workload/class.yaml")
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n---\n")
	classes := corev1.ConfigMap{}
	if err = yaml.UnmarshalStrict([]byte(first), &classes); err != nil {
		t.Fatal(err)
	}
	installed := map[string]bool{}
	for _, build := range contract.WindowsBuilds() {
		installed[build.RuntimeClass] = true
	}
	if len(classes.Data) == 0 {
		t.Error("the condition sets no RuntimeClass")
	}
	for tag, class := range classes.Data {
		if !installed[class] {
			t.Errorf("pods of %s get the RuntimeClass %s, which is not installed", tag, class)
		}
	}
}
