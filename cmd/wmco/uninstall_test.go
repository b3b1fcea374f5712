package main

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/windows-nodes/wmco/api/v1alpha1"
)

func TestA65_TheOperatorIsNotRemovedWhileHostsAreJoined(t *testing.T) {
	t.Parallel()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).Build()
	foreign := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "another", Name: "a"}}
	if err := c.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := checkUninstall(t.Context(), c, "ns"); err != nil {
		t.Fatal(err)
	}
	for n := range 12 {
		i := &v1alpha1.WindowsInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("10.0.0.%02d", n)}}
		if n == 0 {
			i.Spec.Source = &v1alpha1.Source{Kind: v1alpha1.SourceMachine}
		}
		if err := c.Create(t.Context(), i); err != nil {
			t.Fatal(err)
		}
	}
	err := checkUninstall(t.Context(), c, "ns")
	if err == nil {
		t.Fatal("hosts would be stranded")
	}
	for _, want := range []string{"12 WindowsInstances", "10.0.0.09, and 2 more", "windows-instances",
		"1 are of Machines: scale their MachineSets to 0"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not said: %v", want, err)
		}
	}
}
