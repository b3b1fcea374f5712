package acceptance

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientsfake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// server is a fake API server. It answers with empty results. Until a set time, it doesn't answer at all.
type server struct {
	mu    sync.Mutex
	until time.Time
}

func (s *server) awayFor(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.until = time.Now().Add(d)
}

func (s *server) RoundTrip(request *http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewBufferString(`{}`)), Request: request}, nil
}

// behind is a run whose server has answered before.
func behind(t *testing.T, s *server) *run {
	t.Helper()
	r, err := newRun(Options{Config: &rest.Config{Host: "https://cluster.invalid", Transport: s}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = r.clients.Discovery().ServerVersion(); err != nil {
		t.Fatal(err)
	}
	return r
}

// asks is a row that calls happens and then sends a request to the API server.
func asks(number string, happens func()) Row {
	return Row{Number: number, trial: trial{try: func(ctx context.Context, r *run) error {
		happens()
		_, err := r.clients.CoreV1().Nodes().Get(ctx, "win-1", metav1.GetOptions{})
		return err
	}}}
}

func TestA76_AnAPIServerThatComesBackIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		r := behind(t, s)
		results := r.try(t.Context(), []Row{asks("X1", func() { s.awayFor(4 * time.Minute) }), asks("X2", func() {})})
		for _, result := range results {
			if result.Verdict != Shown {
				t.Errorf("row %s is %s: %s", result.Number, result.Verdict, result.Reason)
			}
		}
	})
}

func TestA76_AnAPIServerThatStaysAwayFailsNoRowAndIsWaitedForOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		r, began := behind(t, s), time.Now()
		never := func() { t.Error("a row was tested without an API server") }
		results := r.try(t.Context(), []Row{asks("X1", func() { s.awayFor(time.Hour) }), asks("X2", never), asks("X3", never)})
		for i, want := range []string{"went away meanwhile", "does not answer", "does not answer"} {
			if got := results[i]; got.Verdict != Unshown || !strings.Contains(got.Reason, want) ||
				!strings.Contains(got.Reason, "connection refused") {
				t.Errorf("row %s is %s: %s", got.Number, got.Verdict, got.Reason)
			}
		}
		if took := time.Since(began); took > r.Outage+time.Minute {
			t.Errorf("three rows together waited for %s", took)
		}
		time.Sleep(time.Hour)
		if again := r.try(t.Context(), []Row{asks("X4", func() {})}); again[0].Verdict != Shown {
			t.Errorf("after the API server returned, a row is %s: %s", again[0].Verdict, again[0].Reason)
		}
	})
}

func TestA76_AnInterruptionEndsTheRowThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		r := behind(t, s)
		ctx, interrupt := context.WithCancel(t.Context())
		results := r.try(ctx, []Row{asks("X1", func() {}), asks("X2", func() {
			s.awayFor(time.Hour)
			time.AfterFunc(time.Second, interrupt)
		}), asks("X3", func() {})})
		for i, want := range []string{"", "interrupted meanwhile", "interrupted before"} {
			if got := results[i]; (got.Verdict == Shown) != (want == "") || !strings.Contains(got.Reason, want) {
				t.Errorf("row %s is %s: %s", got.Number, got.Verdict, got.Reason)
			}
		}
	})
}

func TestA76_RightsThatAreLackingAreNamed(t *testing.T) {
	t.Parallel()
	clients := clientsfake.NewClientset()
	clients.PrependReactor("create", "selfsubjectaccessreviews", func(a clienttesting.Action) (bool, runtime.Object, error) {
		review := a.(clienttesting.CreateAction).GetObject().(*authorizationv1.SelfSubjectAccessReview).DeepCopy()
		asked := review.Spec.ResourceAttributes
		review.Status.Allowed = asked.Verb != "patch" && (asked.Resource != "nodes" || asked.Verb != "list")
		return true, review, nil
	})
	r := at(t, "one")
	r.clients = clients
	err := mayRun(t.Context(), r)
	const want = "these rights are lacking: patch windowsinstances in namespace " +
		"windows-machine-config-operator, list nodes"
	if err == nil || strings.ReplaceAll(err.Error(), r.Namespace, "windows-machine-config-operator") != want {
		t.Errorf("the error is %v", err)
	}
}
