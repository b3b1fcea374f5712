package config_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/contract"
)

// If a value doesn't fit the operator's types, no client of the operator can read the object. So the API server must
// refuse it.
func TestA62_SettingsThatCanNotBeReadAreRefused(t *testing.T) {
	t.Parallel()
	admin := connect(t, common(t).Admin())
	for spec, valid := range map[string]bool{
		`{"logging":{"maxSize":"50Mi","maxAge":"72h30m","maxFiles":0,"flushInterval":"0s"}}`:             true,
		`{"logging":{"maxSize":52428800}}`:                                                               true,
		`{"logging":{"maxAge":"three days"}}`:                                                            false,
		`{"logging":{"maxAge":"-1h"}}`:                                                                   false,
		`{"logging":{"maxAge":3600}}`:                                                                    false,
		`{"logging":{"flushInterval":"5"}}`:                                                              false,
		`{"logging":{"maxSize":"lots"}}`:                                                                 false,
		`{"logging":{"maxFiles":-1}}`:                                                                    false,
		`{"rollout":{"drainTimeout":"soon"}}`:                                                            false,
		`{"kubelet":{"config":{"maxPods":60,"evictionHard":{"a.b":"1%"}}}}`:                              true,
		`{"kubelet":{"config":[1]}}`:                                                                     false,
		`{"kubelet":{"config":"maxPods: 60"}}`:                                                           false,
		`{"trust":{"additionalCA":"more"}}`:                                                              true,
		`{"trust":{"additionalCA":{"name":"more"}}}`:                                                     false,
		`{"apiServer":"https://api.example.com:6443","network":{"type":"Flannel"}}`:                      true,
		`{"apiServer":"` + strings.Repeat("a", 513) + `"}`:                                               false,
		`{"apiServer":{"url":"https://api.example.com"}}`:                                                false,
		`{"network":{"type":"Cilium"}}`:                                                                  false,
		`{"network":{"clusterDomain":"k8s.example.com"}}`:                                                true,
		`{"network":{"clusterDomain":"a..b"}}`:                                                           false,
		`{"network":{"clusterDomain":"a.-b"}}`:                                                           false,
		`{"network":{"clusterDomain":"A.b"}}`:                                                            false,
		`{"network":{"type":"flannel"}}`:                                                                 false,
		`{"proxy":{"httpProxy":"` + strings.Repeat("a", 2049) + `"}}`:                                    false,
		`{"proxy":{"noProxy":["a"]}}`:                                                                    false,
		`{"mirrors":{"imageDigestMirrors":[{"mirrors":["a"]}]}}`:                                         false,
		`{"mirrors":{"imageDigestMirrors":[{"source":""}]}}`:                                             false,
		`{"mirrors":{"imageTagMirrors":[{"source":"a","mirrorSourcePolicy":"Never"}]}}`:                  false,
		`{"mirrors":{"imageTagMirrors":[` + strings.Repeat(`{"source":"a"},`, 256) + `{"source":"a"}]}}`: false,
		`{"pullSecret":"` + strings.Repeat("a", 254) + `"}`:                                              false,
		`{"rollout":{"maxUnavailable":"101%"}}`:                                                          false,
		`{"rollout":{"maintenanceWindows":[{"start":"0 22 * * 6","duration":"168h"}]}}`:                  true,
		`{"rollout":{"maintenanceWindows":[{"start":"0 22 * * 6","duration":"1h30m"}]}}`:                 true,
		`{"rollout":{"maintenanceWindows":[{"start":"0 22 * * 6","duration":"0s"}]}}`:                    false,
		`{"rollout":{"maintenanceWindows":[{"start":"0 22 * * 6","duration":"0h0m"}]}}`:                  false,
		`{"rollout":{"maintenanceWindows":[{"start":"0 22 * * 6","duration":"169h"}]}}`:                  false,
		`{"rollout":{"maxUnavailable":-1}}`:                                                              false,
		`{"rollout":{"maxConcurrentJoins":0}}`:                                                           false,
		`{"rollout":{"maxConcurrentJoins":1001}}`:                                                        false,
	} {
		body := fmt.Sprintf(
			`{"apiVersion":"windowsmachineconfig.openshift.io/v1alpha1","kind":"WindowsMachineConfig","metadata":{"name":"cluster"},"spec":%s}`, spec)
		err := admin.CoreV1().RESTClient().Post().AbsPath("/apis/windowsmachineconfig.openshift.io/v1alpha1/windowsmachineconfigs").
			Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Error()
		if valid && err != nil || !valid && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// If Nodes can't have a label or taint, the API server would refuse each write of the operator. So the setting must
// be refused.
func TestLabelsAndTaintsThatNoNodeTakesAreRefused(t *testing.T) {
	t.Parallel()
	admin := connect(t, common(t).Admin())
	for spec, valid := range map[string]bool{
		`"labels":{"team":"blue","example.com/Tier_1.a":"","a.b-c.example.com/x":"1"}`: true,
		`"labels":{"":"a"}`:                                   false,
		`"labels":{"a b":"a"}`:                                false,
		`"labels":{"a/b/c":"a"}`:                              false,
		`"labels":{"Example.com/a":"a"}`:                      false,
		`"labels":{"example.com/":"a"}`:                       false,
		`"labels":{"` + strings.Repeat("a", 64) + `":"a"}`:    false,
		`"labels":{"` + strings.Repeat("a", 254) + `/a":"a"}`: false,
		`"labels":{"a":"` + strings.Repeat("a", 64) + `"}`:    false,
		`"taints":[{"key":"example.com/gpu","value":"yes","effect":"NoSchedule"},{"key":"a","effect":"NoExecute"}]`: true,
		`"taints":[{"key":"a","value":"","effect":"PreferNoSchedule"}]`:                                             true,
		`"taints":[{"key":"","effect":"NoSchedule"}]`:                                                               false,
		`"taints":[{"key":"` + strings.Repeat("a", 318) + `","effect":"NoSchedule"}]`:                               false,
		`"taints":[{"key":"a","value":"` + strings.Repeat("a", 64) + `","effect":"NoSchedule"}]`:                    false,
		`"taints":[{"key":"a","effect":"Never"}]`:                                                                   false,
		`"taints":[{"key":"a","effect":""}]`:                                                                        false,
	} {
		body := fmt.Sprintf(`{"apiVersion":"windowsmachineconfig.openshift.io/v1alpha1","kind":"WindowsInstance",`+
			`"metadata":{"name":"a"},"spec":{"address":"192.0.2.1","username":"a",%s}}`, spec)
		err := admin.CoreV1().RESTClient().Post().AbsPath("/apis/windowsmachineconfig.openshift.io/v1alpha1",
			"namespaces", contract.OperatorNamespace, "windowsinstances").
			Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body([]byte(body)).
			Do(t.Context()).Error()
		if valid && err != nil || !valid && !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// Without a WindowsMachineConfig, the operator uses its own defaults. They must equal the CRD's defaults.
func TestDefaultsOfTheCRDAreThoseOfTheOperator(t *testing.T) {
	t.Parallel()
	admin := connect(t, common(t).Admin())
	body := `{"apiVersion":"windowsmachineconfig.openshift.io/v1alpha1","kind":"WindowsMachineConfig",` +
		`"metadata":{"name":"cluster"},"spec":{}}`
	answer, err := admin.CoreV1().RESTClient().Post().
		AbsPath("/apis/windowsmachineconfig.openshift.io/v1alpha1/windowsmachineconfigs").
		Param("dryRun", metav1.DryRunAll).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var made v1alpha1.WindowsMachineConfig
	if err = json.Unmarshal(answer, &made); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		crd      *metav1.Duration
		operator time.Duration
	}{
		"drainTimeout":  {made.Spec.Rollout.DrainTimeout, v1alpha1.DefaultDrainTimeout},
		"settleTime":    {made.Spec.Rollout.SettleTime, v1alpha1.DefaultSettleTime},
		"verifyTimeout": {made.Spec.Rollout.VerifyTimeout, v1alpha1.DefaultVerifyTimeout},
	} {
		if c.crd == nil || c.crd.Duration != c.operator {
			t.Errorf("%s is %v in the CRD and %s in the operator", name, c.crd, c.operator)
		}
	}
}

// The operator only reads WindowsInstances in its own namespace. An instance in another namespace would wait
// forever, without a message.
func TestA75_AHostThatIsListedInAnotherNamespaceIsRefusedWithTheNamespace(t *testing.T) {
	t.Parallel()
	admin := connect(t, common(t).Admin())
	list := func(ctx context.Context, namespace string) error {
		body := `{"apiVersion":"windowsmachineconfig.openshift.io/v1alpha1","kind":"WindowsInstance",` +
			`"metadata":{"name":"a"},"spec":{"address":"192.0.2.1","username":"a"}}`
		return admin.CoreV1().RESTClient().Post().AbsPath("/apis/windowsmachineconfig.openshift.io/v1alpha1",
			"namespaces", namespace, "windowsinstances").Param("dryRun", metav1.DryRunAll).
			SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx).Error()
	}
	until(t, func(ctx context.Context) bool { return refusedByPolicy(list(ctx, metav1.NamespaceDefault)) })
	if err := list(t.Context(), metav1.NamespaceDefault); !refusedByPolicy(err) ||
		!strings.Contains(err.Error(), "-n "+contract.OperatorNamespace) {
		t.Errorf("the error is %v", err)
	}
	if err := list(t.Context(), contract.OperatorNamespace); err != nil {
		t.Error(err)
	}
}
