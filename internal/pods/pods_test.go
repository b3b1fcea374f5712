package pods_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/windows-nodes/wmco/internal/pods"
	"github.com/windows-nodes/wmco/test/podstest"
)

func newClient(t *testing.T, s *podstest.Server) kubernetes.Interface {
	t.Helper()
	api, err := pods.NewClient(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func (w *watcher) look(t *testing.T, api kubernetes.Interface, query pods.Query) bool {
	t.Helper()
	all, err := pods.Each(t.Context(), api, query, func(*corev1.Pod) error {
		w.seen++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

type watcher struct{ seen int }

// etcd stores objects of up to 1.5 MiB. In JSON, each of the characters in this pod needs six bytes.
func TestA55_APodOfCharactersThatAreEscapedIsRead(t *testing.T) {
	t.Parallel()
	s := podstest.New(t, 2, 0)
	s.Pods[0].Spec.Containers[0].Args = []string{strings.Repeat("<", 1500<<10)}
	w := watcher{}
	if all := w.look(t, newClient(t, s), pods.Query{Fields: pods.OfNode("win-a"), Now: time.Now}); !all || w.seen != 2 {
		t.Errorf("saw %d pods, all: %v", w.seen, all)
	}
}

// If the API server responds from its watch cache, it returns all objects, no matter which limit is requested.
func TestPagesAreNotRequestedFromTheAPIServersMemory(t *testing.T) {
	t.Parallel()
	s := podstest.New(t, 12, 1<<20)
	w := watcher{}
	all := w.look(t, newClient(t, s), pods.Query{Fields: pods.OfNode("win-a"), Cached: true, Now: time.Now})
	if !all || w.seen != 12 {
		t.Errorf("saw %d pods, all: %v", w.seen, all)
	}
	for i, query := range s.Lists {
		if cached, limited := strings.Contains(query, "resourceVersion=0"), strings.Contains(query, "limit"); cached != (i == 0) ||
			limited != (i > 0) {
			t.Errorf("list %d: %s", i, query)
		}
	}
}

// Even if visiting a pod is slow, the pass ends in time, but not before the first pod of a page was visited.
func TestAPassEndsInTheMiddleOfAPage(t *testing.T) {
	t.Parallel()
	s := podstest.New(t, 10, 1)
	now := time.Unix(1_800_000_000, 0)
	seen := 0
	all, err := pods.Each(t.Context(), newClient(t, s), pods.Query{Fields: pods.OfNode("win-a"), Now: func() time.Time { return now }},
		func(*corev1.Pod) error {
			seen++
			now = now.Add(pods.PassLimit)
			return nil
		})
	if err != nil || all || seen != 2 {
		t.Errorf("saw %d pods, all: %v, %v", seen, all, err)
	}
}

func TestManyUsualPodsOfAClusterAreReadInPages(t *testing.T) {
	t.Parallel()
	s := podstest.New(t, 2*pods.Page+1, 100)
	for i := range s.Pods {
		s.Pods[i].ObjectMeta = metav1.ObjectMeta{Name: strconv.Itoa(10000 + i)}
	}
	w := watcher{}
	if all := w.look(t, newClient(t, s), pods.Query{Fields: pods.OfNode("win-a"), Page: pods.Page, Now: time.Now}); !all ||
		w.seen != len(s.Pods) || len(s.Lists) != 3 {
		t.Errorf("saw %d pods in %d lists, all: %v", w.seen, len(s.Lists), all)
	}
}
