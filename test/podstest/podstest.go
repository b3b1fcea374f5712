// Package podstest provides a fake API server that lists pods. It can hold any number of pods of any size. Tests of
// code that reads pods use it.
package podstest

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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Server serves lists of pods.
type Server struct {
	mu sync.Mutex
	// Pods are the server's pods, sorted by name. Evictions delete pods from this list.
	Pods []corev1.Pod
	// Lists contains the queries of all list requests. Broken is the HTTP status of refused list requests.
	Lists  []string
	Broken int
	// Slow is how long a list request takes. Passed is the total time of all list requests.
	Slow   time.Duration
	Passed atomic.Int64
	// Largest is the number of bytes of the largest answer that the client has read. Read is the total number. The
	// client counts the bytes, because the operating system buffers data between server and client.
	Largest, Read atomic.Int64

	url string
}

// New starts a server with a number of pods of a given size on node win-a.
func New(t *testing.T, count, size int) *Server {
	t.Helper()
	s := &Server{}
	for n := range count {
		s.Pods = append(s.Pods, corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pod-" + strconv.Itoa(10000+n)},
			Spec: corev1.PodSpec{NodeName: "win-a", Containers: []corev1.Container{{Name: "a",
				Args: []string{strings.Repeat("x", size)}}}}})
	}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// Config returns a client configuration for the server. The client counts the bytes that it reads.
func (s *Server) Config() *rest.Config {
	config := &rest.Config{Host: s.url, QPS: -1}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{next, s} })
	return config
}

// Change changes the server's state.
func (s *Server) Change(edit func(s *Server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s)
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	parts := strings.Split(r.URL.Path, "/")
	switch {
	case r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/eviction"):
		s.Pods = slices.DeleteFunc(s.Pods, func(p corev1.Pod) bool { return p.Name == parts[len(parts)-2] })
		answer(w, http.StatusOK, metav1.Status{Status: metav1.StatusSuccess})
	case strings.HasSuffix(r.URL.Path, "/daemonsets/there"):
		answer(w, http.StatusOK, metav1.PartialObjectMetadata{
			TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
			ObjectMeta: metav1.ObjectMeta{Name: "there", UID: "uid-there"}})
	case r.URL.Path != "/api/v1/pods":
		answer(w, http.StatusNotFound, metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound,
			Code: http.StatusNotFound})
	default:
		s.list(w, r)
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	s.Lists = append(s.Lists, query.Encode())
	s.Passed.Add(int64(s.Slow))
	selector, err := fields.ParseSelector(query.Get("fieldSelector"))
	if s.Broken != 0 || err != nil {
		answer(w, max(s.Broken, http.StatusBadRequest), metav1.Status{Status: metav1.StatusFailure,
			Code: int32(max(s.Broken, http.StatusBadRequest))}) //nolint:gosec // a status of HTTP
		return
	}
	list := &corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}}
	limit, _ := strconv.Atoi(query.Get("limit"))
	for i := range s.Pods {
		// If pods are deleted between two pages, positions shift. Therefore, the next page begins after a name.
		pod := &s.Pods[i]
		if pod.Name <= query.Get("continue") || !selector.Matches(fields.Set{"spec.nodeName": pod.Spec.NodeName,
			"status.phase": string(pod.Status.Phase)}) {
			continue
		}
		if limit > 0 && len(list.Items) == limit {
			list.Continue = list.Items[limit-1].Name
			break
		}
		list.Items = append(list.Items, *pod)
	}
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf)
		_ = protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(list, w)
		return
	}
	answer(w, http.StatusOK, list)
}

func answer(w http.ResponseWriter, status int, with any) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(with)
}

// counted is a transport that counts the bytes of answers that are read.
type counted struct {
	next http.RoundTripper
	s    *Server
}

// RoundTrip implements http.RoundTripper.
func (c *counted) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := c.next.RoundTrip(request)
	if err == nil {
		response.Body = &body{ReadCloser: response.Body, s: c.s}
	}
	return response, err
}

type body struct {
	io.ReadCloser
	read int64
	s    *Server
}

// Read implements io.Reader.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.read += int64(n)
	b.s.Read.Add(int64(n))
	b.s.Largest.Store(max(b.s.Largest.Load(), b.read))
	return n, err
}
