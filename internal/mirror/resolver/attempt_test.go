package resolver

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/windows-nodes/wmco/internal/mirror"
)

// lastMoment sends an empty response at the moment when its client gives up.
type lastMoment struct{}

// RoundTrip implements http.RoundTripper.
func (lastMoment) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
}

// When a server sees that its client has closed the connection, its handler ends. Its empty response may arrive
// before the client has closed its own end. The resolver once took this response for wrong content.
func TestAnAnswerThatComesAsItsTimeEndsIsNone(t *testing.T) {
	t.Parallel()
	rules, err := mirror.NewRules(nil)
	if err != nil {
		t.Fatal(err)
	}
	r := New(Options{Token: "0123456789abcdef"})
	s := newState(r.options, Config{Rules: rules})
	s.transport.common.RegisterProtocol("https", lastMoment{})
	p := &pull{resolver: r, state: s, target: target{endpoint: blobs, image: mirror.At("quay.io", "a")}}
	answer, err := p.question(http.MethodGet, mirror.At("mirror.test", "a"), 0).ask(t.Context(), time.Millisecond)
	var f *fault
	if !errors.As(err, &f) || f.reason != ReasonSlow {
		t.Errorf("answered %+v, %v", answer, err)
	}
}
