package resolver

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// lastMoment answers as its client gives up, with nothing.
type lastMoment struct{}

// RoundTrip is http.RoundTripper.
func (lastMoment) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// A server detects that its client closes the connection and ends its handler. The empty response arrives before
// the client has closed its own end. This was once treated as content, and so as wrong content.
func TestAnAnswerThatComesAsItsTimeEndsIsNone(t *testing.T) {
	t.Parallel()
	rules, err := mirror.NewRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := New(Options{Token: "0123456789abcdef"})
	if err != nil {
		t.Fatal(err)
	}
	s := newState(r.options, Config{Rules: rules})
	s.transport.common.RegisterProtocol("https", lastMoment{})
	p := &pull{resolver: r, state: s, target: target{endpoint: blobs, image: mirror.At("quay.io", "a")}}
	answer, err := p.question(http.MethodGet, mirror.At("mirror.test", "a"), 0).ask(t.Context(), time.Millisecond)
	var f *fault
	if !errors.As(err, &f) || f.reason != ReasonSlow {
		t.Errorf("answered %+v, %v", answer, err)
	}
}
