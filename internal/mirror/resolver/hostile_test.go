package resolver

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// A user who can name an image decides which hosts the resolver asks, and these hosts can answer anything.
func TestWhatUnknownHostsAnswerTakesLittleMemory(t *testing.T) { //nolint:paralleltest // counts the heap
	padding := strings.Repeat("x", 60_000)
	way := roundTrip(func(request *http.Request) (*http.Response, error) {
		r := &http.Response{StatusCode: http.StatusUnauthorized, Body: http.NoBody, Request: request,
			Header: http.Header{"Www-Authenticate": {fmt.Sprintf(`bearer realm="https://%s/token",service="s",x="%s"`,
				request.URL.Host, padding)}}}
		if request.URL.Path == "/token" {
			r.StatusCode, r.Body = http.StatusOK, io.NopCloser(strings.NewReader(`{"token":"`+padding+`"}`))
		}
		return r, nil
	})
	o := Options{}.defaults()
	s := newState(o, Config{})
	s.transport.common.RegisterProtocol("https", way)
	before := heap()
	for n := range proofsKept {
		q := question{pull: &pull{state: s}, at: mirror.At(fmt.Sprintf("h%d.test", n), fmt.Sprintf("r%d", n))}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+q.at.Host+"/v2/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		refusal, err := way(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = refusal.Body.Close()
		header, err := q.prove(t.Context(), refusal)
		if err != nil || header != "Bearer "+padding {
			t.Fatalf("a token of %d bytes, %v", len(header), err)
		}
	}
	if kept := heap() - before; kept > 4<<20 {
		t.Errorf("%d MiB are kept of the answers of %d hosts", kept>>20, proofsKept)
	}
	runtime.KeepAlive(s)
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // fits
}
