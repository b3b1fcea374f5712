package payloadserver_test

import (
	"encoding/pem"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientfake "k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
	"github.com/windows-nodes/wmco/internal/payloadserver"
)

func published(content []byte) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"},
		Data:       map[string]string{"client-ca-file": string(content)},
	}
}

func TestTheCAsAreThoseOfTheClusterAndReadNowAndThen(t *testing.T) {
	t.Parallel()
	first, second := newCA(t), newCA(t)
	encode := func(a *signingCA) []byte {
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
	}
	client, now := clientfake.NewClientset(published(encode(first))), time.Now()
	clientCAs := payloadserver.NewClientCAs(client, func() time.Time { return now })
	same := func(a *signingCA) bool {
		t.Helper()
		pool, err := clientCAs.Pool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want, err := a.pool(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return pool.Equal(want)
	}
	if !same(first) {
		t.Error("they are not those that are published")
	}
	if _, err := client.CoreV1().ConfigMaps("kube-system").Update(t.Context(), published(encode(second)),
		metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if !same(first) {
		t.Error("the API server is asked for every connection")
	}
	now = now.Add(time.Minute)
	if !same(second) {
		t.Error("a rotation is not followed")
	}
	now = now.Add(-time.Hour)
	client.PrependReactor("get", "configmaps",
		func(k8stesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	if _, err := clientCAs.Pool(t.Context()); err == nil {
		t.Error("a clock that was set back lets the CAs stay for ever")
	}
}

func TestNobodyIsLetInWithoutCAs(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]*clientfake.Clientset{
		"because none are published":   clientfake.NewClientset(published(nil)),
		"because nothing is published": clientfake.NewClientset(),
		"because what is there is not": clientfake.NewClientset(published([]byte("nonsense"))),
	} {
		if pool, err := payloadserver.NewClientCAs(client, time.Now).Pool(t.Context()); err == nil || pool != nil {
			t.Errorf("%s: %v", name, pool)
		}
	}
}

func TestOnlyNodesOfInstancesAreKnown(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	instance := func(namespace, name, node string) *v1alpha1.WindowsInstance {
		return &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Status: v1alpha1.WindowsInstanceStatus{NodeName: node}}
	}
	reader := fake.NewClientBuilder().WithScheme(scheme).
		WithObjects(instance("ours", "10.0.0.1", "win-1"), instance("ours", "10.0.0.2", ""),
			instance("theirs", "10.0.0.3", "win-3")).Build()
	nodes := payloadserver.Nodes{Reader: reader, Namespace: "ours"}
	for node, want := range map[string]bool{"win-1": true, "win": false, "10.0.0.1": false, "win-3": false, "": false} {
		if got, err := nodes.Known(t.Context(), node); err != nil || got != want {
			t.Errorf("%q: %v, %v", node, got, err)
		}
	}
}
