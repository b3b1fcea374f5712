package publish_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/blueprint"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/lab/openshift"
	"github.com/windows-nodes/wmco/test/clustertest"
)

// injected is how many CAs the cluster itself adds if it has a proxy, or CAs for a proxy.
const injected = 2

// In each step, an administrator changes the cluster, and the test checks what is published. All steps share one API
// server.
func TestDayTwoIsFollowedByWatches(t *testing.T) {
	t.Parallel()
	p := startPlane(t, true)
	playing, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- openshift.FollowProxy(playing, p.lab.Admin()) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	p.run(t, time.Hour)
	p.current(t, "")
	for _, step := range []struct {
		name string
		do   func(t *testing.T, p *plane)
		// holds reports whether the desired state contains the changed setting.
		holds func(d blueprint.Desired) bool
	}{
		{"A22 a mirror is made", func(t *testing.T, p *plane) {
			t.Helper()
			p.create(t, &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "m"},
				Spec: configv1.ImageDigestMirrorSetSpec{
					ImageDigestMirrors: []configv1.ImageDigestMirrors{{Source: "quay.io/a",
						Mirrors: []configv1.ImageMirror{"m.example/x"}}},
				}})
		}, func(d blueprint.Desired) bool {
			return len(d.Confidential.Mirrors) == 1 && d.Confidential.Mirrors[0].Mirrors[0] == "m.example/x"
		}},
		{"A22 and one by tag", func(t *testing.T, p *plane) {
			t.Helper()
			p.create(t, &configv1.ImageTagMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "m"},
				Spec: configv1.ImageTagMirrorSetSpec{
					ImageTagMirrors: []configv1.ImageTagMirrors{{Source: "quay.io/a",
						Mirrors: []configv1.ImageMirror{"m.example/x"}}},
				}})
		}, func(d blueprint.Desired) bool { return len(d.Confidential.Mirrors) == 2 }},
		{"A22 the first one goes", func(t *testing.T, p *plane) {
			t.Helper()
			p.remove(t, &configv1.ImageDigestMirrorSet{ObjectMeta: metav1.ObjectMeta{Name: "m"}})
		}, func(d blueprint.Desired) bool {
			return len(d.Confidential.Mirrors) == 1 && d.Confidential.Mirrors[0].Kind == contract.PullByTag
		}},
		{"A23 the pull secret changes", func(t *testing.T, p *plane) {
			t.Helper()
			change(t, p, contract.ConfigNamespace, contract.PullSecret, func(s *corev1.Secret) {
				s.Data = map[string][]byte{
					corev1.DockerConfigJsonKey: []byte(`{"auths":{"new.example":{"auth":"YTpi"}}}`)}
			})
		}, func(d blueprint.Desired) bool {
			return strings.Contains(string(d.Confidential.PullSecret), "new.example")
		}},
		{"A23 the pull secret is deleted, and nodes keep it", func(t *testing.T, p *plane) {
			t.Helper()
			p.remove(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
				Name: contract.PullSecret}})
		}, func(d blueprint.Desired) bool {
			_, facts, err := p.source.Current(t.Context())
			return err == nil && strings.Contains(string(d.Confidential.PullSecret), "new.example") &&
				slices.ContainsFunc(facts.Troubles, func(trouble *contract.Problem) bool {
					return strings.Contains(trouble.Detail, contract.PullSecret)
				})
		}},
		{"A23 the pull secret is made again", func(t *testing.T, p *plane) {
			t.Helper()
			p.create(t, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: contract.ConfigNamespace,
				Name: contract.PullSecret}, Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{}}`)}})
		}, func(d blueprint.Desired) bool {
			return string(d.Confidential.PullSecret) == `{"auths":{}}` && len(d.Rejected) == 0
		}},
		{"A24 a proxy is set", func(t *testing.T, p *plane) {
			t.Helper()
			change(t, p, "", "cluster", func(o *configv1.Proxy) {
				o.Spec.HTTPProxy, o.Spec.HTTPSProxy, o.Spec.NoProxy = "http://p:3128", "http://me:hunter2@p:3128",
					"user.example"
			})
		}, func(d blueprint.Desired) bool {
			env := d.Manifest.EnvironmentVars
			return env["HTTP_PROXY"] == "http://p:3128" &&
				d.Confidential.Environment["HTTPS_PROXY"] == "http://me:hunter2@p:3128" &&
				strings.Contains(env["NO_PROXY"], "user.example") &&
				strings.Contains(env["NO_PROXY"], ".cluster.local") && env["HTTPS_PROXY"] == ""
		}},
		{"A25 with CAs", func(t *testing.T, p *plane) {
			t.Helper()
			p.create(t, bundle(t, contract.ConfigNamespace, "user-ca", contract.CABundleField))
			change(t, p, "", "cluster", func(o *configv1.Proxy) { o.Spec.TrustedCA.Name = "user-ca" })
		}, func(d blueprint.Desired) bool { return len(d.Confidential.Trust) == 1+injected }},
		{"A25 and registries have theirs", func(t *testing.T, p *plane) {
			t.Helper()
			p.create(t, bundle(t, contract.ConfigNamespace, "registries", "m.example..5000"))
			change(t, p, "", "cluster", func(o *configv1.Image) { o.Spec.AdditionalTrustedCA.Name = "registries" })
		}, func(d blueprint.Desired) bool {
			return len(d.Confidential.Trust) == 2+injected && d.Confidential.RegistryTrust["m.example:5000"] != ""
		}},
		{"A25 and Windows nodes have theirs, named before they are there", func(t *testing.T, p *plane) {
			t.Helper()
			p.create(t, &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: "cluster"},
				Spec: v1alpha1.WindowsMachineConfigSpec{
					Trust: v1alpha1.TrustSpec{AdditionalCA: "more"},
				}})
		}, func(d blueprint.Desired) bool {
			return len(d.Confidential.Trust) == 2+injected && len(d.Rejected) == 1 &&
				d.Rejected[0].Reason == contract.ReasonTrustSourceMissing
		}},
		{"A25 now they are there", func(t *testing.T, p *plane) {
			t.Helper()
			p.create(t, bundle(t, contract.OperatorNamespace, "more", "any"))
		}, func(d blueprint.Desired) bool { return len(d.Confidential.Trust) == 3+injected && len(d.Rejected) == 0 }},
		{"A24 the proxy goes, with its CAs", func(t *testing.T, p *plane) {
			t.Helper()
			change(t, p, "", "cluster", func(o *configv1.Proxy) { o.Spec = configv1.ProxySpec{} })
		}, func(d blueprint.Desired) bool {
			return len(d.Manifest.EnvironmentVars)+len(d.Confidential.Environment) == 0 &&
				len(d.Confidential.Trust) == 2
		}},
		{"kubelet's configuration is refused", func(t *testing.T, p *plane) {
			t.Helper()
			change(t, p, "", "cluster", func(o *v1alpha1.WindowsMachineConfig) {
				o.Spec.Kubelet.Config = &runtime.RawExtension{Raw: []byte(`{"maxPods":60,"port":1}`)}
			})
		}, func(d blueprint.Desired) bool {
			return len(d.KubeletFragment) == 0 && len(d.Rejected) == 1 &&
				d.Rejected[0].Reason == contract.ReasonKubeletConfigRefused
		}},
		{"kubelet's configuration is mended", func(t *testing.T, p *plane) {
			t.Helper()
			change(t, p, "", "cluster", func(o *v1alpha1.WindowsMachineConfig) {
				o.Spec.Kubelet.Config = &runtime.RawExtension{Raw: []byte(`{"maxPods":60}`)}
			})
		}, func(d blueprint.Desired) bool {
			return string(d.KubeletFragment) == `{"maxPods":60}` && len(d.Rejected) == 0
		}},
	} {
		if !t.Run(step.name, func(t *testing.T) {
			step.do(t, p)
			eventually(t, "waiting for it to be published", func(context.Context) (bool, error) {
				d, _, ok := p.source.Published()
				return ok && step.holds(d), nil
			})
		}) {
			return
		}
	}
	t.Run("A23 the published ConfigMap has no confidential data", func(t *testing.T) {
		after := p.current(t, "")
		for key, text := range p.manifest(t.Context(), t, after.ConfigMapName()).Data {
			for _, hidden := range []string{"PRIVATE KEY", "hunter2", "YTpi"} {
				if strings.Contains(text, hidden) {
					t.Errorf("the ConfigMap has %s in %s", hidden, key)
				}
			}
		}
	})
}

// change edits an object.
func change[T any, P interface {
	*T
	client.Object
}](t *testing.T, p *plane, namespace, name string, edit func(P)) {
	t.Helper()
	eventually(t, "changing "+name, func(ctx context.Context) (bool, error) {
		object := P(new(T))
		if err := p.admin.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
			return false, err
		}
		edit(object)
		return p.admin.Update(ctx, object) == nil, nil
	})
}

func (p *plane) remove(t *testing.T, o client.Object) {
	t.Helper()
	if err := p.admin.Delete(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// bundle returns a ConfigMap with one CA.
func bundle(t *testing.T, namespace, name, key string) *corev1.ConfigMap {
	t.Helper()
	pem, err := clustertest.Certificate(name)
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string]string{key: string(pem)}}
}
