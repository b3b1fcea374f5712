package blueprint

import (
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/internal/contract"
)

// RuntimeClasses are samples, one for each supported Windows release: a pod that names one runs on
// a node of the build that its image was made for.
func RuntimeClasses() []nodev1.RuntimeClass {
	releases := []struct{ name, build string }{
		{"windows2019", "10.0.17763"}, {"windows2022", "10.0.20348"}, {"windows2025", "10.0.26100"},
	}
	toleration := func(value string) corev1.Toleration {
		return corev1.Toleration{Key: contract.TaintKey, Operator: corev1.TolerationOpEqual, Value: value,
			Effect: corev1.TaintEffectNoSchedule}
	}
	classes := make([]nodev1.RuntimeClass, 0, len(releases))
	for _, r := range releases {
		classes = append(classes, nodev1.RuntimeClass{
			TypeMeta:   metav1.TypeMeta{APIVersion: nodev1.SchemeGroupVersion.String(), Kind: "RuntimeClass"},
			ObjectMeta: metav1.ObjectMeta{Name: r.name},
			Handler:    runtimeHandler,
			Scheduling: &nodev1.Scheduling{
				NodeSelector: map[string]string{
					corev1.LabelOSStable: "windows", corev1.LabelArchStable: "amd64", contract.BuildLabel: r.build,
				},
				Tolerations: []corev1.Toleration{toleration("windows"), toleration(contract.TaintValue)},
			},
		})
	}
	return classes
}
