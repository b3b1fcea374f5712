package workload

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/internal/policy"
	"github.com/windows-nodes/wmco/lab/cluster"
	"github.com/windows-nodes/wmco/lab/plane"
	"github.com/windows-nodes/wmco/lab/scheme"
)

// This test checks that a real API server can select pods by these fields.
func TestA73_PodsThatCantRunAreFoundOnARealAPIServer(t *testing.T) {
	t.Parallel()
	lab := plane.Start(t, cluster.Options{})
	if _, err := cluster.InstallCRDs(t.Context(), lab.Admin(),
		cluster.CRDOptions{Paths: []string{filepath.Join("..", "..", "..", "config", "crd")}}); err != nil {
		t.Fatal(err)
	}
	api, err := client.New(lab.Admin(), client.Options{Scheme: scheme.New(t)})
	if err != nil {
		t.Fatal(err)
	}
	place := func(pod *corev1.Pod) {
		t.Helper()
		pod.Namespace, pod.OwnerReferences = metav1.NamespaceDefault, nil
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "nginx"}}
		status := pod.Status
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true,
			func(ctx context.Context) (bool, error) { // fails until the namespace has its ServiceAccount
				return api.Create(ctx, pod) == nil, nil
			})
		if err != nil {
			t.Fatal(err)
		}
		pod.Status = status
		if err = api.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if err = api.Create(t.Context(), node("a")); err != nil {
		t.Fatal(err)
	}
	place(linux("logs", "a"))
	place(linux("elsewhere", "b"))
	place(pending("web"))
	podClient, err := pods.NewClient(lab.Admin())
	if err != nil {
		t.Fatal(err)
	}
	f := &fixture{}
	f.Checker = newChecker(api, podClient, f, func() time.Time { return began.Add(policy.UnplaceableAfter) })
	if got := f.looks(t); !slices.Equal(got, []string{"a"}) {
		t.Errorf("delivered %v", got)
	}
	if len(f.events) != 2 || !strings.HasPrefix(f.events[0], "Pod default/logs LinuxPodPlaced") ||
		!strings.HasPrefix(f.events[1], "Pod default/web PodUnplaceable") {
		t.Errorf("events %q", f.events)
	}
}
