package payloadserver_test

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/windows-nodes/wmco/internal/payloadserver"
)

// An API server that takes requests and never answers must not keep those who connect, one behind the other.
func TestA55_AnAPIServerThatHangsKeepsNobodyWaiting(t *testing.T) {
	t.Parallel()
	var asked atomic.Int64
	api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		<-r.Context().Done()
	}))
	defer api.Close()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: api.URL})
	if err != nil {
		t.Fatal(err)
	}
	clientCAs := payloadserver.NewClientCAs(client, time.Now)
	done := make(chan struct{})
	go func() {
		defer close(done)
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				if _, err := clientCAs.Pool(t.Context()); err == nil {
					t.Error("somebody is let in")
				}
			})
		}
		all.Wait()
	}()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatal("they wait for it without end")
	}
	if n := asked.Load(); n >= 10 {
		t.Errorf("it was asked %d times", n)
	}
}
