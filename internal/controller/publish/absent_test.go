package publish

import (
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/version"
	kubernetesfake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/cluster"
	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/test/clustertest"
)

type serverVersion struct{}

func (serverVersion) ServerVersion() (*version.Info, error) {
	return &version.Info{GitVersion: "v1.36.3"}, nil
}

// kubeadmObjects returns the objects of a cluster that kubeadm created, and the objects that the settings refer to.
func kubeadmObjects(t *testing.T) []client.Object {
	t.Helper()
	ca, err := clustertest.Certificate("ca")
	if err != nil {
		t.Fatal(err)
	}
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	object := func(namespace, name, key, text string) client.Object {
		return &corev1.ConfigMap{ObjectMeta: in(namespace, name), Data: map[string]string{key: text}}
	}
	return []client.Object{
		object("kube-public", "cluster-info", "kubeconfig", `clusters: [{name: a, cluster: {server: "https://api.example.com"}}]`),
		object("kube-system", "kubeadm-config", "ClusterConfiguration",
			"networking: {dnsDomain: k8s.example.com, podSubnet: 10.244.0.0/16}"),
		object("kube-system", "extension-apiserver-authentication", "client-ca-file", string(ca)),
		object(contract.OperatorNamespace, "kube-root-ca.crt", "ca.crt", string(ca)),
		object(contract.OperatorNamespace, "more", "a", string(ca)),
		&corev1.Secret{ObjectMeta: in(contract.OperatorNamespace, "creds"),
			Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"m.example":{"auth":"bWU6cHc="}}}`)}},
		&networkingv1.ServiceCIDR{ObjectMeta: in("", "kubernetes"),
			Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/12"}}},
		&discoveryv1.EndpointSlice{ObjectMeta: in("default", "kubernetes")},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "kube-dns",
			Labels: map[string]string{"k8s-app": "kube-dns"}}, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}},
		&v1alpha1.WindowsMachineConfig{ObjectMeta: in("", contract.MachineConfigObject), Spec: v1alpha1.WindowsMachineConfigSpec{
			PullSecret: "creds", Trust: v1alpha1.TrustSpec{AdditionalCA: "more"},
			Kubelet: v1alpha1.KubeletSpec{Config: &runtime.RawExtension{Raw: []byte(`{"maxPods":60}`)}}}},
	}
}

func TestA80_NoObjectThatIsAbsentPublishesAnotherRevision(t *testing.T) {
	t.Parallel()
	all := kubeadmObjects(t)
	w := newWorld(t, all...)
	clients := kubernetesfake.NewClientset()
	clients.PrependReactor("create", "subjectaccessreviews", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	restart := func() {
		t.Helper()
		facts, err := cluster.NewPlain(cluster.Options{Cached: w.client, Live: w.client, Version: serverVersion{},
			Namespace: contract.OperatorNamespace, Access: clients.AuthorizationV1().SubjectAccessReviews()})
		if err != nil {
			t.Fatal(err)
		}
		w.publisher.Facts, w.publisher.source = facts, &Source{}
	}
	restart()
	w.publish(t)
	want := w.current(t)
	if len(want.KubeletFragment) == 0 || len(want.Confidential.Trust) != 1 || len(want.Confidential.PullSecret) == 0 {
		t.Fatalf("the settings are not in effect: %+v", want.Rejected)
	}
	for _, object := range all {
		check := func(when string) {
			t.Helper()
			w.publish(t)
			if have := w.current(t); have.Revision != want.Revision {
				t.Errorf("%T %s: %s revision %s, not %s", object, object.GetName(), when, have.Revision, want.Revision)
			}
		}
		again, ok := object.DeepCopyObject().(client.Object)
		if err := w.client.Delete(t.Context(), object); err != nil || !ok {
			t.Fatal(err)
		}
		check("without it,")
		restart()
		check("after a restart without it,")
		again.SetResourceVersion("")
		if err := w.client.Create(t.Context(), again); err != nil {
			t.Fatal(err)
		}
		check("once it is there again,")
		restart()
		check("after another restart,")
	}
}

// The rollout must use new settings even if no revision can be published with them.
func TestA80_SettingsAreRememberedAlsoWhileNoRevisionCanBePublished(t *testing.T) {
	t.Parallel()
	config := &v1alpha1.WindowsMachineConfig{ObjectMeta: metav1.ObjectMeta{Name: contract.MachineConfigObject}}
	w := newWorld(t, config)
	if _, err := w.publisher.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, err := cluster.Remembered(t.Context(), w.client, contract.OperatorNamespace)
	if err != nil || before.Status.DesiredRevision == "" {
		t.Fatalf("%+v, %v", before, err)
	}
	w.facts.answer(func(s *factsStub) {
		s.err = contract.NewProblem(contract.ReasonNetworkUnsupported, "the network is another one")
	})
	if err = w.client.Get(t.Context(), client.ObjectKeyFromObject(config), config); err != nil {
		t.Fatal(err)
	}
	config.Spec.Rollout.MaxConcurrentJoins = 7
	if err = w.client.Update(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if _, err = w.publisher.pass(t.Context()); err != nil {
		t.Fatal(err)
	}
	last, err := cluster.Remembered(t.Context(), w.client, contract.OperatorNamespace)
	if err != nil || last.Spec.Rollout.MaxConcurrentJoins != 7 ||
		last.Status.DesiredRevision != before.Status.DesiredRevision {
		t.Errorf("the saved settings are %+v, %v", last, err)
	}
}
