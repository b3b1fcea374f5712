package instance_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/instance/journey"
)

// podServer is as much of an API server as a drain needs, with pods that a tenant gave a node's name.
type podServer struct {
	mu   sync.Mutex
	pods []corev1.Pod
	// lists counts lists of pods.
	lists int
	// read is how many bytes the client took of its largest answer: the server can't tell, as the operating
	// system holds as much as it likes on the way.
	read countedReads
	// slow is how long a list takes, passed how long all did, in nanoseconds.
	slow, passed atomic.Int64
}

func (s *podServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if parts := strings.Split(r.URL.Path, "/"); r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction") {
		s.pods = slices.DeleteFunc(s.pods, func(p corev1.Pod) bool { return p.Name == parts[len(parts)-2] })
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusSuccess})
		return
	}
	if strings.HasSuffix(r.URL.Path, "/daemonsets/there") {
		_ = json.NewEncoder(w).Encode(metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"})
		return
	}
	if r.URL.Path != "/api/v1/pods" {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
			Code: http.StatusNotFound})
		return
	}
	s.lists++
	s.passed.Add(s.slow.Load())
	// pods that are gone meanwhile would shift the rest, so a page goes on after a name
	from := slices.IndexFunc(s.pods, func(p corev1.Pod) bool { return p.Name > r.URL.Query().Get("continue") })
	if from < 0 {
		from = len(s.pods)
	}
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: s.pods[from:]}
	if limit, _ := strconv.Atoi(r.URL.Query().Get("limit")); limit > 0 && limit < len(list.Items) {
		list.Items = list.Items[:limit]
		list.Continue = list.Items[limit-1].Name
	}
	_ = json.NewEncoder(w).Encode(list)
}

// countedReads keeps the largest answer that went through it.
type countedReads struct {
	next    http.RoundTripper
	largest atomic.Int64
}

// RoundTrip is http.RoundTripper.
func (c *countedReads) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil {
		response.Body = &countedBody{ReadCloser: response.Body, largest: &c.largest}
	}
	return response, err
}

type countedBody struct {
	io.ReadCloser
	read    int64
	largest *atomic.Int64
}

// Read is io.Reader.
func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.largest.Store(max(b.largest.Load(), b.read))
	return n, err
}

// newPodServer serves pods of a size, and gives the client that the operator has for it.
func newPodServer(t *testing.T, count, size int) (*podServer, *world) {
	t.Helper()
	s := &podServer{}
	for n := range count {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + strconv.Itoa(10000+n)},
			Spec: corev1.PodSpec{NodeName: "win-a", Containers: []corev1.Container{{Name: "a",
				Args: []string{strings.Repeat("x", size)}}}}}
		s.pods = append(s.pods, pod)
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL, QPS: -1}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		s.read.next = next
		return &s.read
	})
	pods, err := journey.PodClient(config)
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, joinedNode("1"))
	w.Pods = pods
	w.Now = func() time.Time { return w.clock.Add(time.Duration(s.passed.Load())) }
	return s, w
}

// Whoever may create pods can give them a node's name, and 1.5 MB each.
func TestA55_LargePodsOnANodeCostADrainBoundedMemory(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 60, 1<<20)
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	if len(s.pods) > 0 {
		t.Errorf("%d pods were not evicted", len(s.pods))
	}
	if read := s.read.largest.Load(); read != journey.MaxPodListBytes {
		t.Errorf("%d bytes were taken of too large an answer", read)
	}
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "done", "")
}

// So many large pods that the operator would be busy with them for as long as the API server lets a list
// go on: it ends the pass, and goes on with the next one.
func TestA55_ManyLargePodsEndAPassOfADrain(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 40, 1<<20)
	s.slow.Store(int64(10 * time.Second))
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	if len(s.pods) == 0 || len(s.pods) == 40 {
		t.Fatalf("%d pods are left after the first pass", len(s.pods))
	}
	for range 20 {
		w.Drain(t.Context(), leaving(), "win-a", drainTimeout)
	}
	if len(s.pods) > 0 {
		t.Errorf("%d pods were not evicted", len(s.pods))
	}
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "done", "")
}

// A pass that is ended has not seen all pods.
func TestADrainThatHasNotSeenAllPodsIsNotDone(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 40, 1<<20)
	for i := range s.pods {
		s.pods[i].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
	}
	s.slow.Store(int64(10 * time.Second))
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
}

func TestADrainOfUsualPodsListsThemOnce(t *testing.T) {
	t.Parallel()
	s, w := newPodServer(t, 250, 8<<10)
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	if len(s.pods) > 0 || s.lists != 1 {
		t.Errorf("%d pods are left after %d lists", len(s.pods), s.lists)
	}
}

func TestADrainLeavesWhatADaemonSetOrTheNodeItselfRuns(t *testing.T) {
	t.Parallel()
	controller := true
	s, w := newPodServer(t, 4, 1)
	s.pods[0].Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "static"}
	s.pods[1].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "there", Controller: &controller}}
	s.pods[2].OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "gone", Controller: &controller}}
	want(t, w.Drain(t.Context(), leaving(), "win-a", drainTimeout), "waits", contract.ReasonDraining)
	var left []string
	for _, pod := range s.pods {
		left = append(left, pod.Name)
	}
	if !slices.Equal(left, []string{"pod-10000", "pod-10001"}) {
		t.Errorf("left are %v", left)
	}
}
