package payload_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/contract"
	"github.com/windows-nodes/wmco/internal/daemon/payload"
)

// payloadServer returns a server that sends the same response to every request.
func payloadServer(t *testing.T, status int, header, body string) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != contract.PayloadServerPath+"aa" {
			t.Errorf("the request is for %s", r.URL.Path)
		}
		switch status {
		case http.StatusPartialContent:
			w.Header().Set("Content-Range", header)
		case http.StatusServiceUnavailable:
			w.Header().Set("Retry-After", header)
		}
		w.WriteHeader(status)
		if _, err := fmt.Fprint(w, body); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

func TestAPayloadServerIsHeldToWhatWasAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		offset int64
		status int
		header string
		good   bool
		busy   time.Duration
	}{
		"the whole": {status: http.StatusOK, good: true},
		"the rest": {offset: 7, status: http.StatusPartialContent, header: "bytes 7-9/10",
			good: true},
		"the whole instead of the rest": {offset: 7, status: http.StatusOK},
		"another part":                  {offset: 7, status: http.StatusPartialContent, header: "bytes 70-99/100"},
		"a part instead of the whole":   {status: http.StatusPartialContent, header: "bytes 0-9/10"},
		"busy":                          {status: http.StatusServiceUnavailable, header: "7", busy: 7 * time.Second},
		"busy without a word":           {status: http.StatusServiceUnavailable, busy: time.Second},
		"busy for ever": {status: http.StatusServiceUnavailable, header: "99999999",
			busy: 5 * time.Minute},
		"busy in the past":                {status: http.StatusServiceUnavailable, header: "-5", busy: time.Second},
		"not there":                       {status: http.StatusNotFound},
		"a range that can't be satisfied": {offset: 7, status: http.StatusRequestedRangeNotSatisfiable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := payloadServer(t, c.status, c.header, "content")
			d := &payload.Server{Client: server.Client(), URLs: []string{server.URL + "/"}}
			body, err := d.Open(t.Context(), []string{"aa"}, c.offset)
			if (err == nil) != c.good {
				t.Fatalf("got %v", err)
			}
			if busy, ok := errors.AsType[*payload.Busy](err); (ok || c.busy > 0) &&
				(busy == nil || busy.After != c.busy) {
				t.Errorf("got %v", err)
			}
			if body == nil {
				return
			}
			content, err := io.ReadAll(body)
			if err = errors.Join(err, body.Close()); err != nil || string(content) != "content" {
				t.Errorf("got %q, %v", content, err)
			}
		})
	}
}

func TestTheNextPayloadServerIsAsked(t *testing.T) {
	t.Parallel()
	away, here := payloadServer(t, http.StatusOK, "", ""), payloadServer(t, http.StatusOK, "", "content")
	away.Close()
	d := &payload.Server{Client: here.Client(), URLs: []string{away.URL, here.URL}}
	body, err := d.Open(t.Context(), []string{"aa"}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err = body.Close(); err != nil {
		t.Error(err)
	}
	if _, err = (&payload.Server{Client: here.Client()}).Open(t.Context(), []string{"aa"}, 0); err == nil {
		t.Error("without a server, no error was returned")
	}
}
